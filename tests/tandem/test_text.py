"""`tandem text`: what one service rendered, the other one on the same port derenders."""

from collections.abc import Iterator

import httpx
import pytest

from tandem.text import TextSettings, create_app
from tests.live import serving

ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(create_app(TextSettings())) as url, httpx.Client(base_url=url, trust_env=False) as client:
        yield client


def post(client: httpx.Client, path: str, body: object) -> httpx.Response:
    return client.post(path, json=body).raise_for_status()


def test_there_and_back(client: httpx.Client) -> None:
    request = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
    prompt = post(client, "/v1/chat/completions/render", request).json()
    ids = post(client, "/tokenize", {"prompt": ANSWER}).json()["tokens"]
    generated = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids, "finish_reason": "length"}]}
    body = {"generate_response": generated, "chat_request": request, "prompt_token_ids": prompt["token_ids"]}
    answer = post(client, "/v1/chat/completions/derender", body).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER


def test_both_sides_tell_the_same_profile(client: httpx.Client) -> None:
    prompt = post(client, "/v1/completions/render", {"prompt": ANSWER}).json()
    (card,) = client.get("/v1/models").json()["data"]
    assert prompt[0]["profile"] == card["profile"]


def test_one_document_describes_both(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"].keys()
    assert {f"/v1/{kind}/{side}" for kind in ("completions", "chat/completions") for side in ("render", "derender")} <= paths
    assert client.get("/health").json()["service"] == "text"
