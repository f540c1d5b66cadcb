"""Chats for benchmarks: messages of natural text in several scripts, of code and of JSON, with a tool. No two are alike.

A cache of whole texts, or of whole words, must not have seen what is to be measured. So every message is made anew, with words that
come again and again, as in real text, and names and numbers that do not.
"""

import json
import random
from typing import Any

JsonObject = dict[str, Any]

CHARACTERS_PER_TOKEN = 2.1
AROUND = 150
"""Of these chats with Qwen3's tokenizer, whose template writes some `AROUND` tokens about the tool."""

SCRIPTS = (
    "the of and to in that it was for on are as with they be at one have this from by hot word but what some is you had how said "
    "which their time will way about many then them would like so these her long make thing see him two has look more day could "
    "go come did number sound no most people my over know water than call first who may down side been now find",
    "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass wir größer "
    "Übung Straßenbahn Aufmerksamkeit natürlich",
    "le de un à être et en avoir que pour dans ce il qui ne sur se pas plus pouvoir par je avec tout faire son été français où",
    "и в не на я быть он с что а по это она этот к но они мы весь который из у такой для человек только время рука жизнь",
    "και το να του η της με που την από για είναι στην δεν τον θα ήταν οι στο μια αυτό πως άνθρωπος",
    "في من على أن إلى هذا التي كان هو ما عن مع قال هذه بعد كل يوم كانت الناس الوقت",
    "के में की है और से को का एक पर यह नहीं भी कि जो तो ही समय लोग पानी",
    "는 이 을 의 에 가 있다 하는 것은 그리고 사람 시간 하루 물 생각 오늘 우리 정말",
)
UNSPACED = (
    "今日 は 明日 の 天気 が 良い と 思います 。 私 たち 東京 駅 から 歩いて カフェ へ 行き ました 、 とても 静か でした",
    "我们 今天 的 天气 很 好 ， 时间 已经 不 早 了 。 他 在 图书馆 里 学习 数据 结构 和 算法 ， 然后 回家 吃饭",
)
EMOJI = ("👩", "🚀", "👨‍👩‍👧", "🇫🇷", "✅")
TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a record up.",
        "parameters": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "minimum": 1},
            },
            "required": ["key"],
        },
    },
}


def chat(size: int, seed: int) -> JsonObject:
    """A request whose prompt has about `size` tokens, the last message a user's."""
    rng = random.Random(f"{size} {seed}")
    return request([*history(rng, size), user(rng)])


def conversation(size: int, seed: int, turn: int) -> JsonObject:
    """A history of about `size` tokens, the same for each `turn`, and a last message that differs."""
    return request([*history(random.Random(f"{size} {seed}"), size), user(random.Random(f"{seed} {turn}"))])


def request(messages: list[JsonObject]) -> JsonObject:
    return {"model": "m", "messages": messages, "tools": [TOOL], "temperature": 0.7, "max_tokens": 512}


def history(rng: random.Random, size: int) -> list[JsonObject]:
    """Ends with an answer of the assistant, so that a user's message may follow."""
    messages: list[JsonObject] = [{"role": "system", "content": f"Session {name(rng)}: be brief."}]
    left = (size - AROUND) * CHARACTERS_PER_TOKEN - 80
    while left > 0:
        for message in turn(rng, min(1500, int(left / 4))):
            messages.append(message)
            left -= len(str(message.get("tool_calls", ""))) + len(message["content"])
    return messages


def turn(rng: random.Random, length: int) -> list[JsonObject]:
    """A question and its answer, some `length` characters each; now and then with a call in between."""
    question = {"role": "user", "content": prose(rng, length)}
    if length < 200 or rng.random() < 0.5:
        return [question, {"role": "assistant", "content": prose(rng, length // 2) + "\n\n" + code(rng, length // 2)}]
    arguments = json.dumps({"key": name(rng), "limit": rng.randrange(100)})
    called = {"id": f"call_{name(rng)}", "type": "function", "function": {"name": "look_up", "arguments": arguments}}
    return [
        question,
        {"role": "assistant", "content": "I will look.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": called["id"], "content": records(rng, length)},
        {"role": "assistant", "content": prose(rng, length)},
    ]


def user(rng: random.Random) -> JsonObject:
    return {"role": "user", "content": f"And {name(rng)}? {prose(rng, 20)}"}


def prose(rng: random.Random, length: int) -> str:
    """Half of it English, as much of the text on the web is."""
    text = ""
    while len(text) < length:
        kind = rng.random()
        if kind < 0.15:
            words = rng.choices(rng.choice(UNSPACED).split(), k=6)
            text += "".join(words) + rng.choice(("\n", *EMOJI))
            continue
        words = rng.choices((SCRIPTS[0] if kind < 0.6 else rng.choice(SCRIPTS[1:])).split(), k=5)
        text += f"{' '.join(words)} {name(rng).capitalize()}, {rng.randrange(3000)}. "
    return text


def code(rng: random.Random, length: int) -> str:
    lines = ["```python"]
    while sum(map(len, lines)) < length:
        this, other = name(rng), name(rng)
        lines += [
            f"def {this}(self, {other}: int = {rng.randrange(500)}) -> str:",
            f"    return self._{other}[{other}]  # see {this}",
        ]
    return "\n".join([*lines, "```"])


def records(rng: random.Random, length: int) -> str:
    made: list[JsonObject] = []
    while sum(len(str(record)) for record in made) < length:
        made.append({"id": rng.randrange(10**6), "name": name(rng), "note": prose(rng, 30), "score": rng.random(), "tags": None})
    return json.dumps(made, ensure_ascii=False, indent=rng.choice((None, 2)))


def name(rng: random.Random) -> str:
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 4)))
