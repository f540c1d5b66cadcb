"""Bodies of many tiny values are refused unread: while a library reads one, no other thread runs (law L10)."""

import json
import random
from typing import Any

import pytest

from protocol.base import Wire
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.errors import BadRequest
from protocol.generate import GenerateRequest
from service_kit.body import TOKENS, WORDS, Most, check_values, parse
from service_kit.offload import BIG

PADDING = "x" * BIG


def count(value: Any) -> tuple[int, int]:
    """What a body has that is no number, and what is one, by walking it. The first of a list or an object comes with it."""
    parts = list(value) if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    values, numbers = int(isinstance(value, list | dict)), 0
    for place, part in enumerate(parts):
        if place and isinstance(value, list) and isinstance(part, int | float) and not isinstance(part, bool):
            numbers += 1
        else:
            values += place > 0
        below = count(part)
        values, numbers = values + below[0], numbers + below[1]
    return values, numbers


def some(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 4 else 4)
    if kind == 0:
        return rng.choice([0, -1, 2.5, 1e9, 12345])
    if kind == 1:
        return "".join(rng.choice('a,[{}]":\\ \n7é') for _ in range(rng.randrange(12)))
    if kind < 4:
        return rng.choice([None, True, False])
    if kind == 4:
        return {f"{number},[{{": some(rng, depth + 1) for number in range(rng.randrange(5))}
    return [some(rng, depth + 1) for _ in range(rng.randrange(9))]


@pytest.mark.parametrize("indent", [None, 1])
def test_values_are_counted_as_by_walking_them(indent: int | None) -> None:
    rng = random.Random(indent)
    for _ in range(300):
        body = [some(rng) for _ in range(9)]
        values, numbers = count(body)
        text = json.dumps(body, indent=indent, ensure_ascii=False)
        for given in (text, text.encode()):
            check_values(given, Most(values, numbers))
            with pytest.raises(BadRequest, match=f"more than {values - 1} objects, lists and texts: send fewer"):
                check_values(given, Most(values - 1, numbers))
            if numbers:
                with pytest.raises(BadRequest, match=f"more than {numbers - 1} numbers: send fewer"):
                    check_values(given, Most(values, numbers - 1))


@pytest.mark.parametrize("mark", [",", "[", "{", '"', '","', ",1", "\\", '"\\', "[" + '"' * 7])
def test_what_is_no_json_is_counted_too(mark: str) -> None:
    text = mark * BIG
    for body in (text, text.encode()):
        with pytest.raises(BadRequest, match=r"send fewer|JSON"):
            parse(Wire, body, Most(1000, 1000))
        with pytest.raises(BadRequest, match="JSON"):
            parse(Wire, body, Most(len(text) + 1, len(text) + 1))


def chat(content: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


def test_the_marks_of_a_text_do_not_count() -> None:
    body = chat('{"a": [1, 2, 3], ' * (WORDS.values // 2))
    assert body.count(b",") > WORDS.values
    assert len(parse(ChatCompletionRequest, body, WORDS).messages) == 1


def test_what_a_long_context_holds_is_taken() -> None:
    tokens = 131_072
    parts = chat([{"type": "text", "text": "a"}] * tokens)
    assert len(parse(ChatCompletionRequest, parts, WORDS).messages[0].content or "") == tokens
    messages = {"messages": [{"role": "user", "content": "a"}] * tokens}
    assert len(parse(ChatCompletionRequest, json.dumps(messages).encode(), WORDS).messages) == tokens
    ids = json.dumps({"prompt": [1] * (8 * tokens)}).encode()
    assert parse(CompletionRequest, ids, WORDS).prompt == [1] * (8 * tokens)


@pytest.mark.parametrize("content", [[{"type": "text", "text": ""}] * 200_000, [{}] * 300_000])
def test_what_no_context_holds_is_refused(content: Any) -> None:
    with pytest.raises(BadRequest, match="more than 524288 objects, lists and texts"):
        parse(ChatCompletionRequest, chat(content), WORDS)


def test_what_render_answers_is_no_worker_too_much() -> None:
    """The longest prompt that render makes (`MAX_CONTEXT`), with ids to go on from."""
    check_values(json.dumps({"token_ids": [1] * 2**22, "output_token_ids": [1] * 2**20}).encode(), TOKENS)
    answer = {"token_ids": [7] * 700_000, "sampling_params": {}}
    assert len(parse(GenerateRequest, json.dumps(answer).encode()).token_ids) == 700_000
