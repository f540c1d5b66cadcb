"""The stream protocol's rules over several events, one broken at a time."""

from typing import Any

import pytest

from protocol.event_stream import EventStream, StreamProtocolError
from protocol.events import GenerateEvent, parse_event


def token(index: int, position: int, *ids: int) -> GenerateEvent:
    choice = {"index": index, "token_index": position, "token_ids": list(ids)}
    return parse_event({"type": "token", "request_id": "r", "created": 1, "choices": [choice]})


def done(index: int, position: int, *ids: int, count: int | None = None, **more: Any) -> GenerateEvent:
    output = position + len(ids) if count is None else count
    choice = {"index": index, "token_index": position, "token_ids": list(ids), "output_tokens": output, "finish_reason": "stop"}
    return parse_event({"type": "done", "request_id": "r", "created": 1, "choices": [choice], **more})


def error() -> GenerateEvent:
    return parse_event({"type": "error", "request_id": "r", "error": {"message": "m", "type": "t"}})


def usage(count: int) -> dict[str, Any]:
    return {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}


def timings(queue: float, execution: float, total: float) -> dict[str, Any]:
    return {"queue_ms": queue, "ttft_ms": 1.0, "execution_ms": execution, "total_ms": total, "tokens_per_s": 1.0}


def test_a_right_stream_passes() -> None:
    stream = EventStream(n=2)
    events = [
        token(0, 0, 5),
        token(1, 0, 6, 7),
        done(1, 2, 2),
        token(0, 1, 8),
        done(0, 2, usage=usage(5), timings=timings(1, 2, 3)),
    ]
    for event in events:
        assert not stream.ended
        stream.check(event)
    assert stream.ended
    stream.finish()


def test_a_resumed_stream_goes_on_in_its_count() -> None:
    stream = EventStream(resumed=3)
    stream.check(token(0, 3, 9))
    stream.check(done(0, 4, 2, usage=usage(5)))
    stream.finish()


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([token(0, 1, 5)], "token_index is 1"),
        ([token(0, 0, 5), token(0, 0, 5)], "token_index is 0"),
        ([token(1, 0, 5)], "not asked for"),
        ([done(0, 0, 2), token(0, 1, 5)], "after the stream's end"),
        ([token(0, 0, 5), done(0, 1, 2, count=7)], "output_tokens is 7"),
        ([token(0, 0, 5), done(0, 1, 2, usage=usage(9))], "usage counts 9"),
        ([done(0, 0, 2, timings=timings(1, 2, 4))], "timings"),
        ([error(), token(0, 0, 5)], "after the stream's end"),
    ],
)
def test_each_rule_is_checked(events: list[GenerateEvent], what: str) -> None:
    stream = EventStream()
    for event in events[:-1]:
        stream.check(event)
    with pytest.raises(StreamProtocolError, match=what) as caught:
        stream.check(events[-1])
    assert caught.value.event is events[-1]


def test_a_choice_ends_once() -> None:
    stream = EventStream(n=2)
    stream.check(done(0, 0, 2))
    with pytest.raises(StreamProtocolError, match="has ended"):
        stream.check(done(0, 1, 2))


def test_a_missing_terminal_is_an_error() -> None:
    stream = EventStream()
    stream.check(token(0, 0, 5))
    with pytest.raises(StreamProtocolError, match="without a terminal"):
        stream.finish()
