"""What a client sees, over a real port."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from render_service.app import RenderSettings, create_app
from tests.live import serving
from tests.tokenizers import folder, profile

CHAT = "/v1/chat/completions/render"
COMPLETION = "/v1/completions/render"
MESSAGES = "/v1/messages/render"
RESPONSES = "/v1/responses/render"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    settings = RenderSettings(model=str(folder("tiny")), served_model_name="tiny", max_model_len=64, max_body_bytes=2 << 20)
    with serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


def test_chat(client: httpx.Client) -> None:
    answer = client.post(CHAT, json={**HI, "model": "tiny"}, headers={"X-Request-Id": "abc"})
    assert answer.status_code == 200
    assert answer.headers["X-Request-Id"] == "abc"
    body = answer.json()
    assert body["request_id"] == "chatcmpl-abc"
    assert body["model"] == "tiny"
    assert body["profile"] == profile("tiny").fingerprint
    assert client.post(CHAT, json={**HI, "model": "tiny"}, headers={"X-Request-Id": "abc"}).content == answer.content


def test_the_other_shapes_of_a_chat(client: httpx.Client) -> None:
    asked = {"model": "tiny", "stream": True}
    bodies = {
        CHAT: {**HI, **asked, "max_tokens": 5, "stream_options": {"include_usage": True}},
        MESSAGES: {**HI, **asked, "max_tokens": 5},
        RESPONSES: {**asked, "input": "hi", "max_output_tokens": 5},
    }
    answers = {path: client.post(path, json=body, headers={"X-Request-Id": "abc"}).json() for path, body in bodies.items()}
    assert [answer.pop("request_id") for answer in answers.values()] == ["chatcmpl-abc", "msg_abc", "resp_abc"]
    assert answers[CHAT]["token_ids"]
    assert answers[MESSAGES] == answers[RESPONSES] == answers[CHAT]


def test_completions(client: httpx.Client) -> None:
    answer = client.post(COMPLETION, json={"prompt": ["the cat", "sat"]}, headers={"X-Request-Id": "abc"})
    assert [request["request_id"] for request in answer.json()] == ["cmpl-abc-0", "cmpl-abc-1"]


def test_tokenize_and_back(client: httpx.Client) -> None:
    answer = client.post("/tokenize", json={"prompt": "Hello world", "return_token_strs": True}).json()
    assert answer == {
        "count": 5,
        "max_model_len": 64,
        "tokens": answer["tokens"],
        "token_strs": ["<s>", "▁H", "ello", "▁w", "orld"],
    }
    assert client.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "<s> Hello world"}
    chat = client.post("/tokenize", json=HI).json()
    assert chat["tokens"] == client.post(CHAT, json=HI).json()["token_ids"]


def test_models(client: httpx.Client) -> None:
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["profile"]) == ("tiny", 64, profile("tiny").fingerprint)


def test_the_openapi_document_lists_the_wire_types(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert {CHAT, MESSAGES, RESPONSES, COMPLETION, "/tokenize", "/detokenize", "/v1/models"} <= set(document["paths"])
    assert {"ChatCompletionRequest", "CompletionRequest", "MessagesRequest", "ResponsesRequest", "GenerateRequest"} <= set(
        document["components"]["schemas"]
    )


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": "hi"}, "messages"),
        (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        (CHAT, {"messages": [{"content": "x"}]}, "messages.0.role"),
        (CHAT, {"messages": [{"role": "user"}]}, "messages.0.content"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        (CHAT, {**HI, "max_tokens": 0}, "max_tokens"),
        (CHAT, {**HI, "max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {**HI, "n": 0}, "n"),
        (CHAT, {**HI, "temperature": "hot"}, "temperature"),
        (CHAT, {**HI, "temperature": 3}, "temperature"),
        (CHAT, {**HI, "top_logprobs": 2}, "top_logprobs"),
        (CHAT, {**HI, "stop_token_ids": [-1]}, "stop_token_ids.0"),
        (CHAT, {**HI, "logit_bias": {"99999": 1}}, "logit_bias"),
        (CHAT, {**HI, "max_tokens": 64}, "max_tokens"),
        (CHAT, {"messages": [{"role": "user", "content": "z" * 100}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": "z" * 100_000}]}, "messages"),
        (MESSAGES, HI, "max_tokens"),
        (MESSAGES, {"max_tokens": 5}, "messages"),
        (MESSAGES, {**HI, "max_tokens": 64}, "max_tokens"),
        (MESSAGES, {"max_tokens": 5, "messages": [{"role": "user", "content": "z" * 100}]}, "messages"),
        (RESPONSES, {}, "input"),
        (RESPONSES, {"input": "hi", "max_output_tokens": 64}, "max_output_tokens"),
        (RESPONSES, {"input": "z" * 100}, "input"),
        (RESPONSES, {"input": "z" * 100, "truncation": "auto"}, "input"),
        (COMPLETION, {}, "prompt"),
        (COMPLETION, {"prompt": ""}, "prompt"),
        (COMPLETION, {"prompt": []}, "prompt"),
        (COMPLETION, {"prompt": [1, -2]}, "prompt.1"),
        (COMPLETION, {"prompt": [[1], [2, -2]]}, "prompt.1.1"),
        (COMPLETION, {"prompt": [1, 437]}, "prompt.1"),
        (COMPLETION, {"prompt": "x", "n": 1000}, "n"),
        (COMPLETION, {"prompt": "x", "stream_options": {}}, "stream_options"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", **HI}, "prompt"),
        ("/detokenize", {"tokens": [437]}, "tokens.0"),
        ("/detokenize", {"tokens": ["5"]}, "tokens.0"),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_field(client: httpx.Client, path: str, body: dict[str, Any], param: str) -> None:
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"], error["type"]) == (400, param, 400, "BadRequestError")
    assert param.split(".")[0] in error["message"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, COMPLETION, "/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 10_000])
def test_no_json_object_is_a_400(client: httpx.Client, path: str, body: bytes) -> None:
    answer = client.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_no_json_has_are_a_400_and_their_names_in_text_are_text(client: httpx.Client, number: str) -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}], "response_format": {"a": %s}}' % number.encode()
    answer = client.post(CHAT, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)
    assert "no JSON" in answer.json()["error"]["message"]
    assert client.post(CHAT, json={"messages": [{"role": "user", "content": number}]}).status_code == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, COMPLETION, "/tokenize", "/detokenize"])
def test_an_unknown_model_is_a_404(client: httpx.Client, path: str) -> None:
    bodies = {
        CHAT: HI,
        MESSAGES: {**HI, "max_tokens": 5},
        RESPONSES: {"input": "x"},
        COMPLETION: {"prompt": "x"},
        "/tokenize": {"prompt": "x"},
        "/detokenize": {"tokens": [1]},
    }
    answer = client.post(path, json={**bodies[path], "model": "gpt-9"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "model")


def test_a_body_over_the_limit_is_a_413(client: httpx.Client) -> None:
    assert client.post("/tokenize", json={"prompt": "x" * (3 << 20)}).status_code == 413


def test_tokenizing_leaves_the_event_loop_free(client: httpx.Client) -> None:
    took: list[float] = []

    def tokenize() -> None:
        started = time.perf_counter()
        assert client.post("/tokenize", json={"prompt": "the cat sat " * 160_000}).status_code == 200
        took.append(time.perf_counter() - started)

    waits = []
    work = threading.Thread(target=tokenize)
    work.start()
    while work.is_alive():
        started = time.perf_counter()
        client.get("/health")
        waits.append(time.perf_counter() - started)
    work.join()
    # Were it done on the loop, one of these calls would have waited for all of it.
    assert max(waits) < took[0] / 2, (max(waits), took)


def test_starting_needs_no_torch_and_no_transformers() -> None:
    code = (
        "import sys; from render_service.app import RenderSettings, create_app; from render_service import chat\n"
        "app = create_app(RenderSettings(model=sys.argv[1]))\n"
        'chat.render(app.state.renderer, b\'{"messages": [{"role": "user", "content": "hi"}]}\', "id")\n'
        "heavy = {'torch', 'transformers', 'llama_cpp', 'numpy'} & set(sys.modules); sys.exit(f'{heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code, "smollm2"], check=True)
