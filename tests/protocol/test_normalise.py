"""vLLM's untyped chunks and Tandem's typed events are read as the same stream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.events import DoneEvent, ErrorEvent, GenerateEvent, TokenEvent, encode_event, parse_event
from protocol.normalise import StreamError, StreamNormaliser
from protocol.sse import SSEDecoder

JsonObject = dict[str, Any]


def vllm_chunks(output: list[int], sizes: list[int], finish: str, stop_reason: Any, usage: bool) -> list[JsonObject]:
    """A choice as vLLM streams it: the finish comes with the last ids, the usage later and only if asked for."""
    chunks, start = [], 0
    for size in [*sizes, len(output)]:
        part = output[start : start + size]
        start += len(part)
        last = start == len(output)
        choice = {"index": 0, "token_ids": part, "finish_reason": finish if last else None, "logprobs": None}
        chunks.append(
            {"request_id": "v", "output_mode": "tokens", "choices": [choice | {"stop_reason": stop_reason if last else None}]}
        )
        if last:
            break
    if usage:
        told = {"prompt_tokens": 3, "completion_tokens": len(output), "total_tokens": 3 + len(output)}
        chunks.append({"request_id": "v", "choices": [], "usage": told})
    return chunks


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), max_size=6),
    st.sampled_from([("stop", None), ("stop", 7), ("length", None), ("abort", None)]),
    st.booleans(),
)
def test_a_vllm_choice_becomes_tokens_and_one_done(
    output: list[int], sizes: list[int], finish: tuple[str, int | None], usage: bool
) -> None:
    reason, stop_reason = finish
    normaliser = StreamNormaliser("r", 5)
    events = [
        e for chunk in vllm_chunks(output, sizes, reason, stop_reason, usage) for e in normaliser.feed(chunk)
    ] + normaliser.end()
    *tokens, done = events
    assert isinstance(done, DoneEvent)
    assert all(isinstance(event, TokenEvent) for event in tokens)
    ids = [i for event in events for i in event.choices[0].token_ids]
    assert ids == output
    position = 0
    for event in events:
        assert event.choices[0].token_index == position
        position += len(event.choices[0].token_ids)
    choice = done.choices[0]
    assert (choice.output_tokens, choice.finish_reason, choice.stop_reason) == (len(output), reason, stop_reason)
    assert choice.token_ids == (output[-1:] if reason == "stop" else [])
    assert (done.usage is not None) == usage
    for event in events:
        assert parse_event(event.wire()) == event


def test_the_last_of_several_choices_carries_the_usage() -> None:
    normaliser = StreamNormaliser("r", 5, n=2)
    finishing = [{"request_id": "v", "choices": [{"index": i, "token_ids": [i], "finish_reason": "length"}]} for i in (1, 0)]
    usage = {"request_id": "v", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    events = [event for chunk in [*finishing, usage] for event in normaliser.feed(chunk)]
    dones = [event for event in events if isinstance(event, DoneEvent)]
    assert [(done.choices[0].index, done.usage is not None) for done in dones] == [(1, False), (0, True)]
    assert normaliser.end() == []


def test_our_own_events_pass_as_they_are() -> None:
    choice = {"index": 0, "token_index": 0, "token_ids": [504], "logprobs": None, "finish_reason": None, "stop_reason": None}
    payload = {"type": "token", "request_id": "r", "created": 1, "choices": [choice]}
    (event,) = StreamNormaliser("x", 0).feed(payload)
    assert json.loads(event.wire()) == payload


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "tokens"},
        {"type": "token", "request_id": "r", "created": 1, "choices": []},
        {"type": "token", "request_id": "r", "created": 1, "choices": [{"index": 0, "token_index": 0, "token_ids": []}]},
        {"type": "error", "request_id": "r", "error": {}, "spare": 1},
        {"choices": "none"},
        {"choices": [{"index": -1}]},
    ],
)
def test_what_is_no_event_is_refused(payload: JsonObject) -> None:
    with pytest.raises(StreamError):
        StreamNormaliser("r", 0).feed(payload)


def test_a_vllm_error_is_an_error_event() -> None:
    payload = {"error": {"message": "engine died", "type": "InternalServerError", "param": None, "code": 500}}
    (event,) = StreamNormaliser("r", 0).feed(payload)
    assert isinstance(event, ErrorEvent)
    assert (event.request_id, event.error.message) == ("r", "engine died")


def test_an_encoded_event_names_its_type_twice() -> None:
    event: GenerateEvent = ErrorEvent.model_validate({"request_id": "r", "error": {"message": "m", "type": "t"}})
    (sent,) = SSEDecoder().feed(encode_event(event))
    assert sent.event == json.loads(sent.data)["type"] == "error"
