"""Whatever the body, the answer is JSON of the right type or an error that blames the client (law L9); twice the same (law L4)."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.anthropic import MessagesRequest
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.errors import TandemError
from protocol.responses import ResponsesRequest
from protocol.tokenize import DetokenizeRequest, TokenizeRequest
from tests.render.rendering import ENDPOINTS, renderer, say

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-1, 500) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@dataclass(frozen=True)
class Blame:
    """What an error says."""

    status: int
    message: str


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
LONG_CHAT = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [CALL]},
        {"role": "tool", "content": "t", "tool_call_id": "c"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
}
LONG_MESSAGES = {
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "r", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "t"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "t"}], "is_error": True},
                {"type": "text", "text": "t"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "low"},
}
LONG_RESPONSES = {
    "instructions": "s",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "t"},
        {"type": "message", "role": "assistant", "status": "incomplete", "content": "so"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
}
VALID: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions/render": [say("hi"), LONG_CHAT],
    "/v1/messages/render": [say("hi", max_tokens=5), LONG_MESSAGES],
    "/v1/responses/render": [{"input": "hi"}, LONG_RESPONSES],
    "/v1/completions/render": [{"prompt": "hi"}, {"prompt": [1, 2]}, {"prompt": [[1], [2]]}],
    "/tokenize": [{"prompt": "hi"}, LONG_CHAT],
    "/detokenize": [{"tokens": [1, 2, 3]}],
}
FIELDS = {
    "/v1/chat/completions/render": ChatCompletionRequest,
    "/v1/messages/render": MessagesRequest,
    "/v1/responses/render": ResponsesRequest,
    "/v1/completions/render": CompletionRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}


def places(value: Any) -> list[tuple[Any, ...]]:
    """Every path into a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, inner in items for rest in places(inner))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("family", ["tiny", "qwen3", "gemma3"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_change_of_a_valid_body(family: str, endpoint: str, data: st.DataObject) -> None:
    body: Any = data.draw(st.sampled_from(VALID[endpoint]))
    for _ in range(data.draw(st.integers(1, 3))):
        if isinstance(body, dict) and data.draw(st.booleans()):
            body = {**body, data.draw(st.sampled_from(sorted(FIELDS[endpoint].model_fields))): data.draw(json_values)}
        else:
            body = put(body, data.draw(st.sampled_from(places(body))), data.draw(json_values))
    answer_or_blame(endpoint, family, json.dumps(body).encode())


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_bodies_that_are_changed_are_valid(endpoint: str) -> None:
    for body in VALID[endpoint]:
        assert isinstance(outcome(endpoint, "qwen3", json.dumps(body).encode()), bytes)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(endpoint: str, body: bytes) -> None:
    answer_or_blame(endpoint, "tiny", body)


def answer_or_blame(endpoint: str, family: str, body: bytes) -> None:
    answer, again = [outcome(endpoint, family, body) for _ in range(2)]
    assert answer == again
    if isinstance(answer, Blame):
        assert answer.status in (400, 404)
        assert answer.message
    else:
        assert isinstance(json.loads(answer), list if endpoint == "/v1/completions/render" else dict)


def outcome(endpoint: str, family: str, body: bytes) -> bytes | Blame:
    try:
        return ENDPOINTS[endpoint](renderer(family), body)
    except TandemError as error:
        return Blame(error.status, error.message)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="▁"), max_size=60))  # gemma3 writes spaces as ▁
@pytest.mark.parametrize("family", ["llama3_1", "gemma3"])  # smollm2's vocabulary lacks some bytes
def test_detokenize_undoes_tokenize(family: str, text: str) -> None:
    def post(path: str, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(ENDPOINTS[path](renderer(family), json.dumps(body).encode()))
        return answer

    tokens = post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    assert post("/detokenize", tokens=tokens)["prompt"] == text


@pytest.mark.parametrize("family", ["qwen3", "llama3_1", "smollm2", "gptoss"])
@pytest.mark.parametrize("opening", ['{"a": ', "["])
def test_arguments_nested_at_any_depth_are_shown_or_refused(family: str, opening: str) -> None:
    """As text they may be deeper than any body. With a `<` in the chat, every character's source is followed."""
    closing = "]" if opening == "[" else "}"
    for depth in (100, 400, 500, 700, 900, 960, 1500, 100_000):
        arguments = f'{{"x": {opening * depth}1{closing * depth}}}'
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        result = {"role": "tool", "content": "t", "tool_call_id": "c"}
        asked = {"messages": [{"role": "user", "content": "<"}, {"role": "assistant", "content": "", "tool_calls": [call]}, result]}
        items = [
            {"role": "user", "content": "<"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
            {"type": "function_call_output", "call_id": "c", "output": "t"},
        ]
        sources = {**asked, "return_token_sources": True}
        for path, body in (("chat/completions", asked), ("chat/completions", sources), ("responses", {"input": items})):
            answer_or_blame(f"/v1/{path}/render", family, json.dumps(body).encode())
