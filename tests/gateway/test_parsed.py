"""Parsed answers through the gateway: streamed, put together and whole they are one answer, whatever breaks on the way."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answers import derendered_chunk
from gateway.assemble import assemble
from protocol.errors import UpstreamError
from tests.derender.parsed import QWEN, chat_request, derenderer, encode, tool
from tests.gateway.inside import Inside, Output
from tests.parsers.kit import given_cases

JsonObject = dict[str, Any]
CASES = [case for case in given_cases() if case["prompt_suffix_ids"]]
OPEN = "<|im_start|>assistant\n"
THOUGHT = "<think>\nwhy so\n</think>\n\n"
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "a long one, with room to break in"}}\n</tool_call>'
TWO = THOUGHT + "Let me see.\n" + CALL + "\n" + CALL.replace("long", "short")


def asked(**fields: Any) -> JsonObject:
    return chat_request(tools=[tool("f", x={"type": "string"})], **fields)


def inside(text: str, *, finish: str = "length", options: JsonObject | None = None, **fields: Any) -> Inside:
    own = derenderer(*QWEN, **(options or {}))
    return Inside(own, encode("qwen3", OPEN), [Output(encode("qwen3", text), finish)], **fields)


def of_case(case: JsonObject, sizes: list[int], choices: int, **fields: Any) -> Inside:
    """The case's output as `choices` choices, later ones cut short, so that they end at other times and places."""
    formats, ids = case["format"], case["output_token_ids"]
    own = derenderer(case["tokenizer"], formats["reasoning_parser"], formats["tool_call_parser"])
    outputs = [Output(ids, case["finish_reason"], sizes)]
    outputs += [Output(ids[: len(ids) * number // choices], "length", sizes) for number in range(choices - 1, 0, -1)]
    return Inside(own, case["prompt_suffix_ids"], outputs, **fields)


@st.composite
def requests(draw: st.DrawFn, case: JsonObject) -> JsonObject:
    """A chat request that the case's output may answer; stop strings are pieces of it, or nowhere in it."""
    text = case["output_text"]
    at = draw(st.integers(0, max(0, len(text) - 1)))
    stop = draw(st.none() | st.just(["\0"]) | st.just([text[at : at + draw(st.integers(1, 6))] or "\0"]))
    fields: JsonObject = {"tools": case["tools"] or None, "tool_choice": case["tool_choice"], "stop": stop}
    fields["include_stop_str_in_output"] = draw(st.booleans())
    fields["include_reasoning"] = draw(st.sampled_from([True, True, False]))
    fields["return_token_ids"] = draw(st.booleans())
    fields["parallel_tool_calls"] = draw(st.booleans())
    return chat_request(**fields, **draw(st.sampled_from([{}, {"logprobs": True, "top_logprobs": 1}])))


@st.composite
def worlds(draw: st.DrawFn, /, **fields: Any) -> tuple[Inside, JsonObject]:
    case = draw(st.sampled_from(CASES))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    return of_case(case, sizes, draw(st.integers(1, 3)), **fields), draw(requests(case))


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_an_answer_put_together_of_chunks_is_derenders_batch_answer_to_the_byte(world: tuple[Inside, JsonObject]) -> None:
    """The path that stop strings take. Derender's batch answer cuts the whole output where the stream ends (and is the only one to
    have timings then: a worker that is stopped tells none)."""
    services, body = world
    grown, whole = services.answer(body, as_stream=True), services.answer(body, as_stream=False)
    assert grown == (whole if b'"timings"' in grown else _untimed(whole))


def _untimed(answer: bytes) -> bytes:
    return re.sub(rb',"timings":\{[^}]*\}', b"", answer)


@given(worlds(replicas=2))
@settings(max_examples=60, deadline=None)
def test_a_stream_is_the_whole_answer_and_every_chunk_says_something(world: tuple[Inside, JsonObject]) -> None:
    services, body = world
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    chunks = services.chunks(body)
    whole = json.loads(services.answer({**body, "stream": False, "stream_options": None}, as_stream=False))
    answer = assemble(chunks, "chat.completion")
    assert {"timings": whole["timings"], **answer} == whole
    *with_choices, last = chunks
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    opened: set[int] = set()
    for chunk in with_choices:
        (choice,) = chunk["choices"]
        assert choice["delta"] or choice["finish_reason"] or choice["logprobs"] or choice.get("token_ids")
        assert ("role" in choice["delta"]) == (choice["index"] not in opened)
        opened.add(choice["index"])
    assert len({chunk["id"] for chunk in chunks}) == 1


@given(st.data(), worlds(replicas=2))
@settings(max_examples=60, deadline=None)
def test_a_stream_outlives_workers_and_derender_replicas(data: st.DataObject, world: tuple[Inside, JsonObject]) -> None:
    """L5, L8: nothing lost, nothing repeated, wherever the worker breaks off and whichever replica dies under a call."""
    services, body = world
    services.outputs = services.outputs[:1]
    whole = services.answer(body, as_stream=False)
    services.generated.clear()
    services.derendered.clear()
    services.breaks = data.draw(st.lists(st.integers(0, 30), max_size=3))
    services.failing = frozenset(data.draw(st.lists(st.integers(0, 60), max_size=4).filter(_no_neighbours)))
    assert _untimed(services.answer(body, as_stream=True)) == _untimed(whole)


def _no_neighbours(numbers: list[int]) -> bool:
    """Two failures in a row of two replicas are no answer."""
    return all(number + 1 not in numbers for number in numbers)


@pytest.mark.parametrize("where", range(1, len(encode("qwen3", TWO))))
def test_a_worker_that_breaks_anywhere_is_gone_on_with(where: int) -> None:
    """In the midst of reasoning, of markup, of a call's arguments."""
    services = inside(TWO, replicas=2, breaks=[where])
    answer = json.loads(services.answer(asked(stop=["zzz"]), as_stream=True))
    message = answer["choices"][0]["message"]
    assert (message["reasoning"], message["content"].strip()) == ("why so", "Let me see.")
    assert [json.loads(call["function"]["arguments"])["x"].split()[1] for call in message["tool_calls"]] == ["long", "short"]
    assert [len(request.get("output_token_ids") or ()) for request in services.generated] == [0, where]


def test_two_replicas_take_turns_and_answer_as_one() -> None:
    alone, both = inside(TWO), inside(TWO, replicas=2)
    assert assemble(both.chunks(asked()), "chat.completion") == assemble(alone.chunks(asked()), "chat.completion")
    assert len(set(both.derendered)) == 2
    assert all(one != other for one, other in zip(both.derendered, both.derendered[1:], strict=False))


def test_two_choices_do_not_mix() -> None:
    """R45, through the gateway: tool indexes restart, usage is the sum."""
    services = inside(TWO)
    other = encode("qwen3", "<think>\nelse\n</think>\n\nNo." + CALL)
    services.outputs = [services.outputs[0], Output(other, "length", (3, 1))]
    answer = json.loads(services.answer(asked(stop=["zzz"]), as_stream=True))
    first, second = (choice["message"] for choice in answer["choices"])
    assert (first["reasoning"], second["reasoning"]) == ("why so", "else")
    assert ([len(message["tool_calls"]) for message in (first, second)], second["content"]) == ([2, 1], "No.")
    details = answer["usage"]["completion_tokens_details"]
    alone = [inside(TWO), inside(TWO)]
    alone[1].outputs = services.outputs[1:]
    each = [json.loads(one.answer(asked(), as_stream=False))["usage"]["completion_tokens_details"] for one in alone]
    assert details["reasoning_tokens"] == sum(one["reasoning_tokens"] for one in each) > 0


@pytest.mark.parametrize("as_stream", [False, True])
def test_shapes(as_stream: bool) -> None:
    """What clients look for: null content beside calls, no `index` in a whole answer's calls, the older name where it is sent."""
    services = inside(THOUGHT + CALL, options={"older_reasoning_field": True})
    answer = json.loads(services.answer(asked(), as_stream=as_stream))
    (choice,) = answer["choices"]
    assert list(choice["message"]) == ["role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls"]
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert list(call) == ["id", "type", "function"]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_markup_makes_no_chunks() -> None:
    """A parser holds markers back, and hidden reasoning is silent: nothing is sent for them."""
    markers = inside(THOUGHT + CALL).chunks(asked())
    assert all(chunk["choices"][0]["delta"] or chunk["choices"][0]["finish_reason"] for chunk in markers)
    hidden = inside("<think>\n" + "so " * 50 + "\n</think>\n\nYes", finish="length").chunks(asked(include_reasoning=False))
    assert len(hidden) < 5
    assert hidden[0]["choices"][0]["delta"]["role"] == "assistant"


def test_plain_text_has_no_details_of_reasoning() -> None:
    """Where nothing is parsed nothing is known of reasoning."""
    services = Inside(derenderer("qwen3", None, None), encode("qwen3", OPEN), [Output(encode("qwen3", "Hi."), "length")])
    for as_stream in (False, True):
        assert "completion_tokens_details" not in json.loads(services.answer(asked(), as_stream=as_stream))["usage"]


def test_chunks_that_no_batch_answer_would_be_are_put_together_all_the_same() -> None:
    """Another's derender: a call without id, null where nothing is said, reasoning by its older name, an unknown field."""
    chunks = [
        {"id": "a", "choices": [{"index": 1, "delta": {"role": "assistant", "content": None}, "token_ids": None, "x": 1}]},
        {"id": "a", "choices": [{"index": 1, "delta": {"reasoning_content": "hm"}, "token_ids": [5]}]},
        {
            "id": "a",
            "choices": [{"index": 1, "delta": {"tool_calls": [{"index": 4, "function": {"name": "f", "arguments": None}}]}}],
        },
        {
            "id": "a",
            "choices": [{"index": 1, "delta": {"tool_calls": [{"index": 4}]}, "token_ids": None, "finish_reason": "tool_calls"}],
        },
    ]
    (choice,) = assemble(chunks, "chat.completion")["choices"]
    call = {"id": "", "type": "function", "function": {"name": "f", "arguments": ""}}
    message = {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "hm", "tool_calls": [call]}
    assert choice == {"index": 1, "message": message, "token_ids": [5], "x": 1, "finish_reason": "tool_calls"}


@pytest.mark.parametrize(
    "choice",
    [
        {"index": 0, "delta": {"tool_calls": [{"index": -1}]}},
        {"index": 0, "delta": {"tool_calls": {"index": 0}}},
        {"index": 0, "delta": []},
        {"index": 0, "text": 5},
        {"index": 0, "logprobs": {"content": 5}},
        {"index": 0, "token_ids": "5"},
    ],
)
def test_chunks_that_cannot_be_put_together_are_told_at_once(choice: JsonObject) -> None:
    body = json.dumps({"chunk": {"choices": [choice]}, "stream_state": {}}).encode()
    with pytest.raises(UpstreamError, match="the derender service answered something else than expected"):
        derendered_chunk(body)
