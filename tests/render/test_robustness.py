"""Whatever the body, the answer is JSON of the right type or an error that blames the client (law L9); twice the same (law L4)."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.errors import TandemError
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
VALID: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions/render": [say("hi"), LONG_CHAT],
    "/v1/completions/render": [{"prompt": "hi"}, {"prompt": [1, 2]}, {"prompt": [[1], [2]]}],
    "/tokenize": [{"prompt": "hi"}, LONG_CHAT],
    "/detokenize": [{"tokens": [1, 2, 3]}],
}
FIELDS = {
    "/v1/chat/completions/render": ChatCompletionRequest,
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
