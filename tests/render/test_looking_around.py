"""Templates that look at other messages, to tell where turns begin and end: extended prompts have what canonical ones have."""

from typing import Any

import pytest

from model_profile import ChatTemplate
from tests.render.rendering import render_chat, renderer
from tests.tokenizers import profile

JsonObject = dict[str, Any]

PARTS = {
    "TURN": "<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}</tool_call>{% endfor %}",
    "END": "{{ '<|im_end|>\n' }}",
    "BEGINNING": "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}
TEMPLATES = {
    "as Qwen3-Coder": "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.previtem and loop.previtem.role != 'tool' %}<|im_start|>user\n{% endif %}"
    "<tool_response>\n{{ m.content }}\n</tool_response>\n"
    "{% if not loop.last and loop.nextitem.role != 'tool' %}END{% elif loop.last %}END{% endif %}"
    "{% else %}TURNEND{% endif %}{% endfor %}BEGINNING",
    "the next": "{% for m in messages %}TURN{% if loop.nextitem and loop.nextitem.role == m.role %}+{% endif %}END{% endfor %}"
    "BEGINNING",
    "the one before": "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'assistant' %}[then]{% endif %}TURNEND"
    "{% endfor %}BEGINNING",
    "the last": "{% for m in messages %}TURN{% if (messages|last).role == 'x' %}{% endif %}END{% endfor %}BEGINNING",
    "by its place": "{% for m in messages %}{% if loop.index0 and messages[loop.index0 - 1].role == 'assistant' %}[then]{% endif %}"
    "TURN{% if (messages[loop.index0 + 1] or m).role %}{% endif %}END{% endfor %}BEGINNING",
    "all others": "{% for m in messages %}TURN{% for o in messages %}{{ 'x' if o.role == '' }}{% endfor %}END{% endfor %}BEGINNING",
    "picked by number": "{% for i in range(messages|length) %}{% set m = messages[i] %}TURNEND{% endfor %}BEGINNING",
    "an end made before": "{% set end %}<|im_end|>\n{% endset %}{% for m in messages %}TURN{{ end }}{% endfor %}BEGINNING",
    "through a macro": "{% macro turn(m) %}TURNEND{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}BEGINNING",
    "an end between turns": "{% for m in messages %}TURN{% if not loop.last %}END{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}END{% endif %}BEGINNING",
}


def template(text: str) -> ChatTemplate:
    for name, part in PARTS.items():
        text = text.replace(name, part)
    return ChatTemplate(text)


def call(number: int) -> JsonObject:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


CHATS: dict[str, list[JsonObject]] = {
    "two turns": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "A1"},
        {"role": "user", "content": "two"},
    ],
    "two calls": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "A1", "tool_calls": [call(1), call(2)]},
        {"role": "tool", "tool_call_id": "c1", "content": "R1"},
        {"role": "tool", "tool_call_id": "c2", "content": "R2"},
        {"role": "assistant", "content": "A2"},
        {"role": "user", "content": "two"},
    ],
    "results last": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "A1", "tool_calls": [call(1)]},
        {"role": "tool", "tool_call_id": "c1", "content": "R1"},
    ],
}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("shape", TEMPLATES)
def test_canonical_ids_give_the_canonical_prompt(shape: str, chat: str, ended: bool) -> None:
    tokenizer = profile("qwen3").tokenizer
    render = renderer("qwen3", chat_template=template(TEMPLATES[shape]))
    messages = CHATS[chat]
    anew = render_chat(render, messages=messages)["token_ids"]

    def answered(message: JsonObject) -> JsonObject:
        if message["role"] != "assistant":
            return message
        text = message["content"] + "<tool_call>f</tool_call>" * len(message.get("tool_calls", ()))
        own = tokenizer.encode(text + "<|im_end|>" * ended, add_special_tokens=False).ids
        return {**message, "token_ids": own}

    answer = render_chat(render, messages=[*map(answered, messages)], return_token_sources=True)
    assert tokenizer.decode(answer["token_ids"], skip_special_tokens=False) == tokenizer.decode(anew, skip_special_tokens=False)
    assert answer["token_identity"]["rewritten_from"] is None
    for count in range(1, len(messages)):
        if messages[count]["role"] == "tool" and messages[count - 1]["role"] == "tool":
            continue
        for begins in {False, messages[count]["role"] == "assistant"}:
            before = render_chat(render, messages=messages[:count], add_generation_prompt=begins)["token_ids"]
            assert render_chat(render, messages=messages, prefix={"token_ids": before, "messages": count})["token_ids"] == anew


GLM = (
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% elif m.role == 'assistant' %}<|assistant|>\n"
    "<think></think>\n{{ m.content }}{% else %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{{ '\n<think></think>' if enable_thinking is defined and not enable_thinking }}{% endif %}"
)


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize(("role", "mark"), [("user", "<|user|>"), ("tool", "<|observation|>")])
def test_a_turn_that_ends_with_the_token_that_begins_the_next(role: str, mark: str, thinks: bool) -> None:
    """GLM's turns do; it is there once, whether the answer was cut or not."""
    tokenizer = profile("qwen3_glm").tokenizer
    ends = tuple(tokenizer.token_to_id(token) for token in ("<|endoftext|>", "<|user|>", "<|observation|>"))
    render = renderer("qwen3_glm", chat_template=ChatTemplate(GLM), eos_token_ids=ends)
    switches = {"chat_template_kwargs": {"enable_thinking": thinks}}
    asked = {"role": "user", "content": "one"}
    begun = render_chat(render, messages=[asked], **switches)["token_ids"]
    own = tokenizer.encode("\nA1", add_special_tokens=False).ids
    found = []
    for ids in (own, [*own, tokenizer.token_to_id(mark)]):
        answered = {"role": "assistant", "content": "A1", "token_ids": ids}
        messages = [asked, answered, {"role": role, "content": "two"}]
        prefix = {"token_ids": begun, "messages": 1}
        found.append(render_chat(render, messages=messages, **switches)["token_ids"])
        # It holds where the model is to think now and was not then.
        assert render_chat(render, messages=messages, prefix=prefix)["token_ids"][: len(begun) + len(ids)] == begun + ids
    assert found[0] == found[1]
    assert tokenizer.decode(found[0], skip_special_tokens=False).count(mark) == (2 if role == "user" else 1)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ '<|im_end|>' }}{% endfor %}",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
        "{% if messages|length > 2 %}{{ raise_exception('no more') }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
    ],
)
def test_templates_that_mark_little(source: str) -> None:
    """What was sampled comes right behind what was rendered, whatever there is to tell turns by."""
    render = renderer("qwen3", chat_template=ChatTemplate(source))
    own = profile("qwen3").tokenizer.encode("A1", add_special_tokens=False).ids
    asked, answered = {"role": "user", "content": "one"}, {"role": "assistant", "content": "A1", "token_ids": own}
    begun = render_chat(render, messages=[asked])["token_ids"]
    for prefix in ({}, {"prefix": {"token_ids": begun, "messages": 1}}):
        ids = render_chat(render, messages=[asked, answered], return_token_sources=True, **prefix)["token_ids"]
        assert ids[: len(begun) + len(own)] == begun + own


def test_a_template_whose_turns_all_begin_alike_is_told_by_its_whole_beginning() -> None:
    """No more than a control token is common to all ways to begin the assistant's turn, and the user's begins with it too."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role if m.role == 'user' else 'bot' }}\n{{ m.content }}{{ '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    render = renderer("qwen3", chat_template=ChatTemplate(source))
    own = profile("qwen3").tokenizer.encode("A1<|im_end|>", add_special_tokens=False).ids
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "A1", "token_ids": own}]
    begun = render_chat(render, messages=messages[:1])["token_ids"]
    for generation in (True, False):
        before = render_chat(render, messages=messages[:1], add_generation_prompt=generation)["token_ids"]
        asked = [*messages, {"role": "user", "content": "two"}]
        ids = render_chat(render, messages=asked, prefix={"token_ids": before, "messages": 1})["token_ids"]
        assert ids[: len(begun) + len(own)] == begun + own
