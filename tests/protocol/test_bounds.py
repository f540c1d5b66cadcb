"""Nothing that a client sends is without bound: integers above all, which JSON allows thousands of digits."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from protocol.anthropic import MessagesRequest
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    DerenderStreamState,
)
from protocol.generate import AbortRequest, GenerateRequest
from protocol.responses import ResponsesRequest
from protocol.sampling import MAX_STOP_BYTES, SamplingParams
from protocol.tokenize import DetokenizeRequest, TokenizeRequest

REQUESTS: list[type[BaseModel]] = [
    ChatCompletionRequest,
    CompletionRequest,
    MessagesRequest,
    ResponsesRequest,
    GenerateRequest,
    AbortRequest,
    TokenizeRequest,
    DetokenizeRequest,
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
]


def integers(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        if node.get("type") == "integer":
            yield path, node
        for key, value in node.items():
            yield from integers(value, f"{path}.{key}")
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from integers(value, f"{path}.{place}")


@pytest.mark.parametrize("model", REQUESTS)
def test_every_integer_has_both_bounds(model: type[BaseModel]) -> None:
    found = list(integers(model.model_json_schema(mode="validation"), model.__name__))
    unbounded = [path for path, node in found if {"minimum", "exclusiveMinimum"}.isdisjoint(node) or "maximum" not in node]
    assert unbounded == []


@pytest.mark.parametrize("stop", ["\x01" * 171, '"' * 513, "日" * 342])
def test_stop_strings_are_measured_as_they_travel(stop: str) -> None:
    assert len(json.dumps(stop, ensure_ascii=False).encode()) - 2 > MAX_STOP_BYTES
    with pytest.raises(ValueError, match="1024 bytes"):
        SamplingParams(stop=stop)


@pytest.mark.parametrize("name", ["Foo", "held-text", "int", "9"])
def test_an_unknown_field_is_named_however_it_is_spelled(name: str) -> None:
    from protocol.errors import invalid

    with pytest.raises(ValueError, match="Extra inputs") as caught:
        DerenderStreamState.model_validate({name: 1})
    assert invalid(caught.value).param == name  # type: ignore[arg-type]
