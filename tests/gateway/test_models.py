"""`GET /v1/models` of the gateway: render's cards, and derender's word on the formats."""

from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from derender_service.app import DerenderSettings
from derender_service.app import create_app as derender_app
from gateway.app import GatewaySettings
from gateway.app import create_app as gateway_app
from tests.gateway.kit import standing
from tests.live import serving

FORMATS = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
NOWHERE = "http://127.0.0.1:9"


def answering(body: str, status: int = 200) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> Response:
        return Response(body, status, media_type="application/json")

    return app


def listed(render: FastAPI | str, derender: FastAPI | str) -> httpx.Response:
    with ExitStack() as stack:
        urls = [each if isinstance(each, str) else stack.enter_context(serving(each)) for each in (render, derender)]
        settings = GatewaySettings(render_url=urls[0], derender_url=urls[1], worker_url=NOWHERE)
        return httpx.get(f"{stack.enter_context(serving(gateway_app(settings)))}/v1/models", trust_env=False)


def test_the_card_tells_what_derender_reads() -> None:
    with serving(derender_app(DerenderSettings(reasoning_parser="qwen3", tool_call_parser="hermes"))) as derender:
        (card,) = listed(standing()[0], derender).json()["data"]
        (own,) = httpx.get(f"{derender}/v1/models", trust_env=False).json()["data"]
        (rendered,) = httpx.get(f"{standing()[0]}/v1/models", trust_env=False).json()["data"]
    assert own["formats"] == FORMATS
    assert "formats" not in rendered
    assert card == rendered | {"formats": FORMATS}


@pytest.mark.parametrize(
    "derender",
    [
        pytest.param(NOWHERE, id="not there"),
        pytest.param(answering('{"error":{"message":"no","type":"x"}}', 500), id="failing"),
        pytest.param(answering('{"object":"list","data":[{"id":"m","object":"model","created":1}]}'), id="another system's"),
        pytest.param(answering('{"data":[{"id":"n","created":1,"formats":{"reasoning_parser":"qwen3"}}]}'), id="another model's"),
        pytest.param(answering("what?"), id="no listing"),
    ],
)
def test_cards_pass_as_they_are_where_derender_tells_nothing(derender: FastAPI | str) -> None:
    body = '{"object":"list","data":[{"id":"m","created":1,"permission":[{"id":"p"}],"max_model_len":7}]}'
    assert listed(answering(body), derender).text == body


@pytest.mark.parametrize("body", ["[]", "{}", '{"data":[1]}', "what?"])
def test_what_is_no_listing_is_passed_on(body: str) -> None:
    told = answering('{"data":[{"id":"m","created":1,"formats":{"reasoning_parser":"qwen3"}}]}')
    assert listed(answering(body), told).text == body


def test_no_render_no_listing() -> None:
    answer = listed(NOWHERE, standing()[1][0])
    error: dict[str, Any] = answer.json()["error"]
    assert answer.status_code == 502
    assert "render" in error["message"]
