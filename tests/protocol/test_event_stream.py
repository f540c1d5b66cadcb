"""The stream protocol's rules over several events, one broken at a time."""

import json
from typing import Any

import pytest

from protocol.event_stream import EventStream, StreamProtocolError
from protocol.events import DoneEvent, GenerateEvent, TokenEvent

JsonObject = dict[str, Any]


def token(index: int, position: int, *ids: int, **more: Any) -> JsonObject:
    choice = {"index": index, "token_index": position, "token_ids": list(ids)}
    return {"type": "token", "request_id": "r", "created": 1, "choices": [choice], **more}


def done(index: int, position: int, *ids: int, count: int | None = None, **more: Any) -> JsonObject:
    output = position + len(ids) if count is None else count
    choice = {"index": index, "token_index": position, "token_ids": list(ids), "output_tokens": output, "finish_reason": "stop"}
    return {"type": "done", "request_id": "r", "created": 1, "choices": [choice], **more}


def last(index: int, position: int, *ids: int, total: int | None = None, **more: Any) -> JsonObject:
    """The `done` that sums up."""
    summed = {"usage": usage(position + len(ids) if total is None else total), "timings": timings(1, 2, 3)}
    return done(index, position, *ids, **{**summed, **more})


def error() -> JsonObject:
    return {"type": "error", "request_id": "r", "error": {"message": "m", "type": "t"}}


def usage(count: int, total: int | None = None) -> JsonObject:
    return {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count if total is None else total}


def timings(queue: float, execution: float, total: float, first: float | None = 1.0) -> JsonObject:
    return {"queue_ms": queue, "ttft_ms": first, "execution_ms": execution, "total_ms": total, "tokens_per_s": 1.0}


def fed(stream: EventStream, *payloads: JsonObject | str) -> list[GenerateEvent]:
    return [event for one in payloads for event in stream.feed(one if isinstance(one, str) else json.dumps(one))]


def test_a_right_stream_passes() -> None:
    stream = EventStream(n=2)
    payloads = [token(0, 0, 5), token(1, 0, 6, 7), done(1, 2, 2), token(0, 1, 8), last(0, 2, total=5)]
    for payload in payloads:
        assert not stream.ended
        fed(stream, payload)
    assert stream.ended
    assert stream.typed
    assert stream.output_tokens == 5
    assert fed(stream, "[DONE]") == stream.close() == []


def test_a_resumed_stream_goes_on_in_its_count() -> None:
    stream = EventStream(resumed=3)
    fed(stream, token(0, 3, 9), last(0, 4, 2))
    stream.close()


BROKEN: dict[str, list[JsonObject | str]] = {
    "token_index is 1": [token(0, 1, 5)],
    "token_index is 0": [token(0, 0, 5), token(0, 0, 5)],
    "not asked for": [token(1, 0, 5)],
    "of another request": [token(0, 0, 5), token(0, 1, 5, request_id="s")],
    "after the stream's end": [last(0, 0, 2), token(0, 1, 5)],
    "an event after the stream's end": [error(), token(0, 0, 5)],
    "output_tokens is 7": [token(0, 0, 5), last(0, 1, 2, count=7)],
    "usage counts 9": [token(0, 0, 5), last(0, 1, 2, usage=usage(9))],
    "usage does not add up": [last(0, 0, 2, usage=usage(1, total=5))],
    "no usage": [last(0, 0, 2, usage=None)],
    "no timings": [last(0, 0, 2, timings=None)],
    "timings do not add up": [last(0, 0, 2, timings=timings(1, 2, 4))],
    "timings do not": [last(0, 0, 2, timings=timings(1, float("nan"), 3))],
    "first token came after the end": [last(0, 0, 2, timings=timings(1, 2, 3, first=4))],
    "follows \\[DONE\\]": [last(0, 0, 2), "[DONE]", "[DONE]"],
    "cannot be read": [{"type": "tokens"}],
    "spare": [token(0, 0, 5, spare=1)],
    "no JSON": ["{"],
    "is no JSON": ["[" * 100_000],
    "no object": ["[]"],
}


@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_is_checked(what: str) -> None:
    stream = EventStream()
    *before, broken = BROKEN[what]
    fed(stream, *before)
    with pytest.raises(StreamProtocolError, match=what) as caught:
        fed(stream, broken)
    assert caught.value.where == len([one for one in before if one != "[DONE]"])
    if isinstance(broken, dict) and "cannot be read" not in str(caught.value):
        assert caught.value.event is not None
        assert caught.value.event.type == broken["type"]


def test_a_choice_ends_once() -> None:
    stream = EventStream(n=2)
    fed(stream, done(0, 0, 2))
    with pytest.raises(StreamProtocolError, match="has ended"):
        fed(stream, done(0, 1, 2))


@pytest.mark.parametrize("payloads", [[], [token(0, 0, 5)], [token(0, 0, 5), "[DONE]"]])
def test_a_missing_terminal_is_an_error(payloads: list[JsonObject | str]) -> None:
    stream = EventStream()
    fed(stream, *payloads)
    with pytest.raises(StreamProtocolError, match="without a terminal"):
        stream.close()


def test_a_stream_of_vllm_is_read_as_ours_and_checked() -> None:
    def chunk(**choice: Any) -> JsonObject:
        return {"request_id": "r", "choices": [{"index": 0, "logprobs": None, "finish_reason": None, **choice}]}

    total = {"request_id": "r", "choices": [], "usage": usage(3)}
    stream = EventStream(created=7)
    events = fed(stream, chunk(token_ids=[5, 6]), chunk(token_ids=[2], finish_reason="stop", stop_reason=None), total, "[DONE]")
    assert [type(event) for event in events] == [TokenEvent, DoneEvent]
    assert isinstance(events[1], DoneEvent)
    assert (events[1].choices[0].output_tokens, events[1].created, stream.typed) == (3, 7, False)
    stream.close()
    # Without the usage that it was not asked for, too; then the end waits for the connection's.
    stream = EventStream()
    assert len(fed(stream, chunk(token_ids=[5, 6], finish_reason="length"))) == 1
    assert len(stream.close()) == 1
    with pytest.raises(StreamProtocolError, match="usage counts 3"):
        fed(EventStream(), chunk(token_ids=[5], finish_reason="length"), total)
