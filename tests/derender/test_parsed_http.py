"""Parsed derendering over HTTP: replicas in turns, retries, and what the model list says."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.processes import server
from derender_service.app import DerenderSettings, create_app
from tests.derender.kit import cut
from tests.derender.parsed import JsonObject, assembled, chat_request, chunk_of, chunks_of, derenderer, encode, tool, whole
from tests.live import serving
from tests.tokenizers import MAX_MODEL_LEN, folder

PATH = "/v1/chat/completions/derender"
REQUEST = chat_request(tools=[tool("f", x={"type": "string"})])
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "a \\"b\\" \\u00fc"}}\n</tool_call>'
TEXT = "<think>\nwhy 日本 so\n</think>\n\nI will. 👩\n" + CALL
PROMPT = encode("qwen3", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[httpx.Client]]:
    """Two servers that know nothing of each other."""
    with ExitStack() as stack:
        clients = []
        for _ in range(2):
            settings = DerenderSettings(model=str(folder("qwen3")), served_model_name="m", max_model_len=MAX_MODEL_LEN)
            url = stack.enter_context(serving(create_app(settings)))
            clients.append(stack.enter_context(httpx.Client(base_url=url)))
        yield clients


def test_formats_are_detected_and_shown(replicas: list[httpx.Client]) -> None:
    (card,) = replicas[0].get("/v1/models").json()["data"]
    assert card["formats"] == {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_replicas_that_take_turns_answer_as_one(replicas: list[httpx.Client], data: st.DataObject) -> None:
    ids = encode("qwen3", TEXT)
    parts = data.draw(cut(ids))
    chunks, state = [], None
    for number, chunk in enumerate(chunks_of(parts, apart=data.draw(st.booleans()))):
        body: JsonObject = {"stream": True, "model": "m", "generate_chunk": chunk, "stream_state": state}
        if number == 0:
            body |= {"chat_request": REQUEST, "prompt_token_ids": PROMPT}
        turns = data.draw(st.permutations(replicas))
        answer, retried = (replica.post(PATH, json=body) for replica in turns)
        assert answer.status_code == 200
        assert answer.content == retried.content
        state = answer.json()["stream_state"]
        chunks.append(answer.json()["chunk"])
    batch = whole(derenderer("qwen3", "qwen3", "hermes"), ids, REQUEST, PROMPT)
    assert assembled(chunks)["message"] == batch["message"]


def test_what_is_missing_or_not_ours_is_a_400(replicas: list[httpx.Client]) -> None:
    first = {"stream": True, "model": "m", "generate_chunk": chunk_of([1])}
    full = {**first, "chat_request": REQUEST, "prompt_token_ids": []}
    state = replicas[0].post(PATH, json=full).json()["stream_state"]
    checkpoint = state["checkpoint"]
    cases: list[tuple[str, JsonObject]] = [
        ("chat_request", {**first, "prompt_token_ids": []}),
        ("prompt_token_ids", {**first, "chat_request": REQUEST}),
        ("stream_state.checkpoint", {**first, "stream_state": {**state, "checkpoint": {**checkpoint, "parser": "x"}}}),
        ("stream_state.checkpoint", {**first, "stream_state": {**state, "checkpoint": {**checkpoint, "version": 0}}}),
        (
            "stream_state.checkpoint.at.region",
            {**first, "stream_state": {**state, "checkpoint": {**checkpoint, "at": {"region": "x"}}}},
        ),
        ("stream_state.checkpoint.at.region", {**first, "stream_state": {**state, "checkpoint": {**checkpoint, "at": {}}}}),
        ("stream_state.checkpoint.at", {**first, "stream_state": {**state, "checkpoint": {**checkpoint, "at": 3}}}),
        ("stream_state.unknown", {**first, "stream_state": {**state, "unknown": 1}}),
        ("stream_state.context.tool_choice", {**first, "stream_state": {**state, "context": {"tool_choice": "any"}}}),
    ]
    for param, body in cases:
        answer = replicas[0].post(PATH, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), json.dumps(body)[-300:]
        assert answer.json()["error"]["message"]


def test_parameter_types_that_no_service_packed_are_a_400() -> None:
    settings = DerenderSettings(model=str(folder("qwen3")), max_model_len=MAX_MODEL_LEN, tool_call_parser="qwen3_coder")
    request = chat_request(tools=[tool("f", x={"type": "integer"})])
    with serving(create_app(settings)) as url, httpx.Client(base_url=url) as client:
        first = {"stream": True, "generate_chunk": chunk_of([1]), "chat_request": request, "prompt_token_ids": []}
        state = client.post(PATH, json=first).json()["stream_state"]
        assert state["context"]["parameter_types"]
        for broken in ("!", "abc", state["context"]["parameter_types"][:-3]):
            body = {**first, "stream_state": {**state, "context": {**state["context"], "parameter_types": broken}}}
            answer = client.post(PATH, json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_state.context.parameter_types")


@pytest.mark.slow
def test_the_event_loop_does_none_of_the_parsing() -> None:
    """L10: while whole outputs of 60,000 ids and batches of 2,000 chunks are parsed, /health is answered within 100 ms."""
    ids = (encode("qwen3", TEXT) * 2000)[:60_000]
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    big = {"generate_response": {"request_id": "r", "choices": [choice]}, "chat_request": REQUEST, "prompt_token_ids": PROMPT}
    item = {"stream": True, "generate_chunk": chunk_of(ids[:20]), "chat_request": REQUEST, "prompt_token_ids": PROMPT}
    work = [(PATH, json.dumps(big)), ("/v1/derender/batch", json.dumps([item] * 2000))] * 2
    model = ("--model", str(folder("qwen3")), "--max-model-len", str(MAX_MODEL_LEN))
    with server("tandem", "derender", *model) as url, httpx.Client(base_url=url) as health, ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(httpx.post, f"{url}{path}", content=body, timeout=60) for path, body in work]
        waits = []
        while not all(one.done() for one in running):
            waits.append(seconds(health))
    assert all(one.result().status_code == 200 for one in running)
    assert len(waits) > 20
    assert max(waits) < 0.1


def seconds(client: httpx.Client) -> float:
    started = time.perf_counter()
    assert client.get("/health").status_code == 200
    return time.perf_counter() - started
