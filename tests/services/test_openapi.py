"""Each service describes itself rightly: a valid OpenAPI document whose schemas take what the service takes."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate
from starlette.testclient import TestClient

from derender_service import app as derender
from gateway import app as gateway
from generate_worker import app as generate
from render_service import app as render
from tandem import text
from tests.tokenizers import folder

APPS: dict[str, Callable[[], FastAPI]] = {
    "render": lambda: render.create_app(render.RenderSettings(model=str(folder("tiny")))),
    "derender": lambda: derender.create_app(derender.DerenderSettings(model=str(folder("tiny")))),
    "text": lambda: text.create_app(text.TextSettings(model=str(folder("tiny")))),
    "generate": lambda: generate.create_app(generate.WorkerSettings(engine="replay")),
    "gateway": lambda: gateway.create_app(gateway.GatewaySettings()),
}
PATHS = {
    "render": {
        "/v1/chat/completions/render",
        "/v1/messages/render",
        "/v1/responses/render",
        "/v1/completions/render",
        "/tokenize",
        "/detokenize",
    },
    "derender": {"/v1/chat/completions/derender", "/v1/completions/derender", "/v1/derender/batch"},
    "generate": {"/inference/v1/generate", "/inference/v1/abort_requests"},
    "gateway": {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"},
}
PATHS["text"] = PATHS["render"] | PATHS["derender"]


def document(name: str) -> dict[str, Any]:
    answer = TestClient(APPS[name]()).get("/openapi.json")
    assert answer.status_code == 200
    read: dict[str, Any] = answer.json()
    return read


@pytest.mark.parametrize("name", APPS)
def test_the_document_is_valid_and_complete(name: str) -> None:
    described = document(name)
    validate(described)
    assert set(described["paths"]) == PATHS[name] | {"/v1/models", "/health", "/metrics"}
    for path in PATHS[name]:
        operation = described["paths"][path]["post"]
        assert operation["requestBody"]["required"]
        assert {"200", "400"} <= set(operation["responses"])
        for response in operation["responses"].values():
            assert response["content"]["application/json"]["schema"]


@pytest.mark.parametrize("name", ["gateway", "generate"])
def test_streams_are_described_where_there_are_any(name: str) -> None:
    described = document(name)
    path = "/v1/chat/completions" if name == "gateway" else "/inference/v1/generate"
    assert "text/event-stream" in described["paths"][path]["post"]["responses"]["200"]["content"]
