"""The parser's state between chunks: refused where it is not this parser's, never misread, replayed where there is only history."""

import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from derender_service.derenderer import Derenderer
from derender_service.stream import derender_chat_chunk
from protocol.derender import DerenderChatStreamRequest
from protocol.errors import BadRequest, ProfileMismatch, TandemError
from tests.derender.parsed import (
    QWEN,
    assembled,
    chat_request,
    chunk_of,
    chunks_of,
    cuts,
    derenderer,
    encode,
    step,
    stream,
    tool,
    whole,
)
from tests.parsers.kit import given_cases
from tests.tokenizers import profile

TOOLS = [tool("f", x={"type": "integer"})]
TEXT = '<think>\nwhy\n</think>\n\nso\n<tool_call>\n{"name": "f", "arguments": {"x": "a \\"b\\" 日本"}}\n</tool_call>'


def next_body(state: Any, ids: Sequence[int] = (1,), **fields: Any) -> dict[str, Any]:
    return {"stream": True, "model": "m", "generate_chunk": chunk_of(ids), "stream_state": state, **fields}


def half(own: Derenderer, **fields: Any) -> dict[str, Any]:
    ids = encode("qwen3", TEXT)
    _, state = stream(own, [chunk_of([i]) for i in ids[: len(ids) // 2]], chat_request(tools=TOOLS), **fields)
    return state


@pytest.mark.parametrize("other", [("qwen3", "deepseek_r1", "hermes"), ("qwen3", "qwen3", "qwen3_coder"), ("qwen3", "qwen3", None)])
def test_another_parsers_state_is_refused(other: tuple[str, str | None, str | None]) -> None:
    with pytest.raises(BadRequest, match=r"qwen3\+hermes"):
        step(derenderer(*other), next_body(half(derenderer(*QWEN))))


def test_another_versions_state_is_refused() -> None:
    state = half(derenderer(*QWEN))
    state["checkpoint"]["version"] += 1
    with pytest.raises(BadRequest, match="version"):
        step(derenderer(*QWEN), next_body(state))


def test_a_server_without_a_parser_refuses_a_parsers_state() -> None:
    with pytest.raises(BadRequest, match="parser"):
        step(derenderer("qwen3", None, None), next_body(half(derenderer(*QWEN))))


def test_a_plain_state_cannot_be_parsed_on() -> None:
    _, state = stream(derenderer("qwen3", None, None), [chunk_of([1000])], chat_request())
    with pytest.raises(BadRequest, match="checkpoint"):
        step(derenderer(*QWEN), next_body(state, chat_request=chat_request(), prompt_token_ids=[]))


def test_another_profiles_state_is_a_conflict() -> None:
    state = half(derenderer(*QWEN))
    with pytest.raises(ProfileMismatch):
        step(derenderer("llama3_1", "qwen3", "hermes"), next_body(state))


scalars = st.none() | st.booleans() | st.integers(-3, 2**40) | st.text(max_size=8) | st.sampled_from(["content", "call", "{", "</"])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return value


MUTABLE = [case for case in given_cases() if case["expected"]["tool_calls"] and len(case["output_token_ids"]) > 8]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_state_is_read_or_refused(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(MUTABLE), label="case")
    own = derenderer(case["tokenizer"], case["format"]["reasoning_parser"], case["format"]["tool_call_parser"])
    ids = case["output_token_ids"]
    at = data.draw(st.integers(1, len(ids) - 1), label="at")
    _, state = stream(own, [chunk_of(ids[:at])], chat_request(tools=case["tools"], tool_choice="auto"), case["prompt_suffix_ids"])
    path = data.draw(st.sampled_from(places(state)), label="place")
    broken = changed(state, path, data.draw(anything, label="value"))
    try:
        request = DerenderChatStreamRequest.model_validate(next_body(broken, ids[at:]))
    except ValidationError:
        return
    with suppress(TandemError):
        derender_chat_chunk(own, request).wire()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_ids_are_read_alike_in_every_cut_come_back_as_they_are_and_nothing_follows_the_end(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(MUTABLE), label="case")
    own = derenderer(case["tokenizer"], case["format"]["reasoning_parser"], case["format"]["tool_call_parser"])
    telling = sorted(set(case["output_token_ids"]) | set(profile(case["tokenizer"]).tokenizer.get_added_tokens_decoder()))
    ids = data.draw(st.lists(st.sampled_from(telling) | st.integers(0, profile(case["tokenizer"]).vocab_size - 1), max_size=40))
    request = chat_request(tools=case["tools"], tool_choice="auto", return_token_ids=True)
    batch = whole(own, ids, request, case["prompt_suffix_ids"], "length")
    assert batch["token_ids"] == ids
    for parts in cuts(ids, sizes=(1, 3)):
        chunks, state = stream(own, chunks_of(parts, "length"), request, case["prompt_suffix_ids"], bounded=False)
        assert assembled(chunks)["message"] == batch["message"]
        assert [i for chunk in chunks for choice in chunk["choices"] for i in choice["token_ids"]] == ids
        assert step(own, next_body(state, ids))["chunk"]["choices"] == []


def test_a_stream_with_its_history_alone_goes_on_here() -> None:
    """As after a server that keeps no checkpoint: its state has the output so far, and each request brings the context."""
    own, ids = derenderer(*QWEN), encode("qwen3", TEXT)
    context = {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": encode("qwen3", "<|im_start|>assistant\n")}
    batch = whole(own, ids, context["chat_request"], context["prompt_token_ids"])
    for at in range(1, len(ids)):
        first, _ = stream(own, [chunk_of(ids[:at])], context["chat_request"], context["prompt_token_ids"])
        lengths = [1] * at if at % 2 else [at]
        state = {"role_sent": True, "output_token_ids": ids[:at], "output_chunk_lens": lengths}
        rest = step(own, {**next_body(state, ids[at:], **context), "generate_chunk": chunk_of(ids[at:], "stop")})
        assert assembled([*first, rest["chunk"]])["message"] == batch["message"]


def test_a_history_without_its_context_is_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        step(derenderer(*QWEN), next_body({"role_sent": True, "output_token_ids": [1], "output_chunk_lens": [1]}))
    assert caught.value.param == "chat_request"


def test_replay_keeps_the_history_for_servers_without_checkpoints() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", TEXT)
    parts = [ids[:5], [], ids[5:6], ids[6:]]
    chunks, state = stream(own, chunks_of(parts), chat_request(tools=TOOLS), bounded=False, replay=True)
    assert state["output_token_ids"] == ids
    assert state["output_chunk_lens"] == [len(part) for part in parts if part]
    (call,) = assembled(chunks)["message"]["tool_calls"]
    assert state["last_tool_call_ids"] == [call["id"]]
    assert state["tools_streamed"] is True


def test_a_state_behind_its_own_history_is_led_on() -> None:
    """Another server read a chunk and added to the history, but kept our checkpoint as it was."""
    own, ids = derenderer(*QWEN), encode("qwen3", TEXT)
    context = {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": [], "replay": True}
    _, state = stream(own, [chunk_of(ids[:9])], chat_request(tools=TOOLS), bounded=False, replay=True)
    behind = {**state, "output_token_ids": ids[:20], "output_chunk_lens": [9, 11]}
    _, right = stream(own, [chunk_of(ids[:9]), chunk_of(ids[9:20])], chat_request(tools=TOOLS), bounded=False, replay=True)
    assert step(own, next_body(behind, ids[20:], **context))["chunk"] == step(own, next_body(right, ids[20:], **context))["chunk"]


def test_replay_cannot_be_asked_for_midway() -> None:
    with pytest.raises(BadRequest) as caught:
        step(derenderer(*QWEN), next_body(half(derenderer(*QWEN)), replay=True))
    assert caught.value.param == "replay"


def test_bodies_are_json_all_the_way() -> None:
    assert json.loads(json.dumps(half(derenderer(*QWEN)))) == half(derenderer(*QWEN))
