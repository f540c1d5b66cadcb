"""What is read of an OpenAI stream, payload by payload."""

import hashlib
import json
from typing import Any

import pytest

from tandem.bench.errors import RequestFailed
from tandem.bench.targets.openai import ChatReading

DONE = "[DONE]"


def delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def usage(prompt: int, output: int) -> dict[str, Any]:
    numbers = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {"id": "c", "choices": [], "usage": numbers}


def read(*payloads: dict[str, Any] | str, hashed: bool = True) -> tuple[list[bool], ChatReading]:
    reading = ChatReading(hashed=hashed)
    sent = [one if isinstance(one, str) else json.dumps(one) for one in payloads]
    return [reading.feed(float(at), one) for at, one in enumerate(sent)], reading


def failure(*payloads: dict[str, Any] | str) -> tuple[str, int | None, str]:
    with pytest.raises(RequestFailed) as caught:
        read(*payloads)[1].answer()
    return caught.value.failure.kind, caught.value.failure.status, caught.value.failure.message


def test_counts_come_from_usage_where_there_is_one() -> None:
    brought, reading = read(delta(role="assistant"), delta(content="Hi"), delta(content="!"), delta("stop"), usage(7, 5), DONE)
    assert brought == [False, True, True, False, False, False]
    answer = reading.answer()
    assert (answer.prompt_tokens, answer.prompt_source) == (7, "usage")
    assert (answer.output_tokens, answer.output_source) == (5, "usage")
    assert (answer.ended, answer.finish_reason, answer.request_id) == (5, "stop", "c")
    assert (answer.output_sha256, answer.hashed) == (hashlib.sha256(b"Hi!").hexdigest(), "text")


def test_without_usage_chunks_are_counted_and_called_so() -> None:
    _, reading = read(delta(role="assistant", content=""), delta(content="a"), delta("length", content="b"), DONE, hashed=False)
    answer = reading.answer()
    assert (answer.prompt_tokens, answer.prompt_source) == (None, None)
    assert (answer.output_tokens, answer.output_source) == (2, "chunks")
    assert (answer.output_sha256, answer.hashed) == (None, None)


def test_reasoning_and_calls_are_output_too() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    payloads = [
        delta(reasoning="r"),
        delta(reasoning_content="s"),
        delta(tool_calls=[call]),
        delta(tool_calls=[more]),
        delta(refusal="no"),
    ]
    brought, reading = read(*payloads, delta("tool_calls"), DONE)
    assert brought == [True] * 5 + [False] * 2
    assert reading.answer().output_sha256 == hashlib.sha256(b"rsf{}no").hexdigest()


def test_the_hash_does_not_see_how_text_was_cut() -> None:
    hashes = {
        read(*[delta(content=part) for part in parts], delta("stop"), DONE)[1].answer().output_sha256
        for parts in (["abc"], ["a", "bc"], ["a", "b", "", "c"])
    }
    assert len(hashes) == 1


def test_our_timings_are_the_servers_clock_and_others_are_left_aside() -> None:
    ours = {"queue_ms": 1, "ttft_ms": 2, "execution_ms": 3, "total_ms": 4, "tokens_per_s": 5}
    timings = read(delta(content="a"), {**delta("stop"), "timings": ours}, usage(1, 1), DONE)[1].answer().timings
    assert timings is not None
    assert timings.total_ms == 4
    assert read({**delta("stop"), "timings": {"predicted_ms": 3}}, DONE)[1].answer().timings is None


@pytest.mark.parametrize(
    ("payloads", "words"),
    [
        ([delta(content="a")], "without a finish_reason"),
        ([delta(content="a"), delta("stop")], "without [DONE]"),
        ([delta(content="a"), DONE], "without a finish_reason"),
        ([delta("stop"), DONE, usage(1, 1)], "follows [DONE]"),
        ([delta("stop"), delta(content="a")], "an answer that has ended"),
        (["nonsense"], "no JSON"),
        (["[]"], "no object"),
        ([{"choices": [{"index": 1, "delta": {"content": "a"}}]}], "not asked for"),
    ],
)
def test_what_is_no_whole_answer_breaks_the_protocol(payloads: list[Any], words: str) -> None:
    kind, status, message = failure(*payloads)
    assert (kind, status) == ("protocol", None)
    assert words in message


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ({"message": "the worker is\ngone", "type": "x", "code": 502}, 502, "the worker is gone"),
        ({"message": "m", "type": "x", "code": "rate_limit"}, None, "m"),
        ("out of luck", None, '"out of luck"'),
    ],
)
def test_an_error_in_the_stream_is_the_servers_word(error: Any, status: int | None, message: str) -> None:
    assert failure(delta(content="a"), {"error": error}) == ("http", status, message)
