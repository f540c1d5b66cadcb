"""Answers through the whole pipeline: streamed and whole are the same, in OpenAI's shapes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.sse import DONE
from service_kit.logs import RequestFilter
from tests.gateway.kit import chat, content_of, events_of, ids_of, pipeline, replay_worker

TEXT = "Hello 日本 👩 one END two"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    lines = [{"token_ids": [*ids_of(TEXT), 2], "finish_reason": "stop"}]
    with pipeline(replay_worker(tmp_path_factory.mktemp("replay"), *lines), derenders=2) as client:
        yield client


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": "smollm2", "prompt": "Hi", "max_tokens": 50, **changes}


def test_a_whole_answer(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=chat(), headers={"X-Request-Id": "abc"})
    body = answer.json()
    assert answer.headers["x-request-id"] == "abc"
    assert (body["object"], body["id"], body["model"]) == ("chat.completion", "chatcmpl-abc", "smollm2")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": TEXT, "refusal": None}
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    assert body["usage"]["completion_tokens"] == len(ids_of(TEXT)) + 1
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


def test_a_stream(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=chat(stream=True))
    events = events_of(answer)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == DONE
    chunks = events[:-1]
    assert content_of(chunks) == TEXT
    assert len({chunk["id"] for chunk in chunks}) == len({chunk["created"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_comes_last_and_only_when_asked_for(client: httpx.Client) -> None:
    whole = client.post("/v1/chat/completions", json=chat()).json()["usage"]
    body = chat(stream=True, stream_options={"include_usage": True})
    *chunks, last, end = events_of(client.post("/v1/chat/completions", json=body))
    assert end == DONE
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]) == ([], whole)


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_cuts_stream_and_answer_alike(client: httpx.Client, include: bool) -> None:
    """R53: cut, told, and counted up to the token that completed it."""
    asked = chat(stop=["END"], include_stop_str_in_output=include)
    right = "Hello 日本 👩 one " + ("END" if include else "")
    whole = client.post("/v1/chat/completions", json=asked).json()
    (choice,) = whole["choices"]
    assert (choice["message"]["content"], choice["finish_reason"], choice["stop_reason"]) == (right, "stop", "END")
    body = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last, _ = events_of(client.post("/v1/chat/completions", json=body))
    assert content_of(chunks) == right
    assert chunks[-1]["choices"][0]["stop_reason"] == "END"
    assert whole["usage"]["completion_tokens"] == last["usage"]["completion_tokens"] == len(ids_of("Hello 日本 👩 one END"))


def test_several_choices_and_several_prompts(client: httpx.Client) -> None:
    body = completion(prompt=["Hi", "Ho"], n=2, max_tokens=3)
    whole = client.post("/v1/completions", json=body).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert whole["usage"]["completion_tokens"] == 12
    streamed = {0: "", 1: "", 2: "", 3: ""}
    for event in events_of(client.post("/v1/completions", json={**body, "stream": True})):
        for choice in event["choices"] if event != DONE else ():
            streamed[choice["index"]] += choice["text"]
    assert list(streamed.values()) == [choice["text"] for choice in whole["choices"]]


def test_logprobs_are_the_same_in_stream_and_answer(client: httpx.Client) -> None:
    asked = chat(logprobs=True, top_logprobs=1, max_tokens=8)
    whole = client.post("/v1/chat/completions", json=asked).json()["choices"][0]["logprobs"]["content"]
    chunks = events_of(client.post("/v1/chat/completions", json={**asked, "stream": True}))[:-1]
    entries = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {}).get("content", [])]
    assert entries == whole
    assert len(whole) == 8
    assert bytes(b for entry in whole for b in entry["bytes"]).decode("utf-8", "ignore") == "Hello 日本 👩"


def test_echo_and_token_ids(client: httpx.Client) -> None:
    whole = client.post("/v1/completions", json=completion(prompt="Hi there", echo=True, return_token_ids=True)).json()
    (choice,) = whole["choices"]
    assert choice["text"] == "Hi there" + TEXT
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (ids_of("Hi there"), [*ids_of(TEXT), 2])


def test_models_and_health(client: httpx.Client) -> None:
    (card,) = client.get("/v1/models").json()["data"]
    assert card["id"] == "smollm2"
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert len(health.json()["services"]) == 4


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/chat/completions", "{", 400, None),
        ("/v1/chat/completions", "[]", 400, None),
        ("/v1/chat/completions", '{"model":"smollm2"}', 400, "messages"),
        ("/v1/chat/completions", '{"model":"nope","messages":[{"role":"user","content":"x"}]}', 404, "model"),
        ("/v1/chat/completions", '{"messages":[{"role":"user","content":"x"}],"max_tokens":0}', 400, "max_tokens"),
        ("/v1/chat/completions", '{"messages":[{"role":"user","content":"x"}],"n":0,"stream":true}', 400, "n"),
        ("/v1/chat/completions", '{"messages":[{"role":"user","content":"x"}],"stream":"maybe"}', 400, "stream"),
        ("/v1/completions", '{"prompt":[-1]}', 400, "prompt.0"),
        ("/v1/completions", '{"prompt":[99999999]}', 400, "prompt.0"),
        ("/v1/completions", '{"prompt":"x","max_tokens":9000}', 400, "max_tokens"),
    ],
)
def test_errors_of_any_hop_are_openai_errors(client: httpx.Client, path: str, body: str, status: int, param: str | None) -> None:
    answer = client.post(path, content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert error["message"]


def test_one_request_id_and_one_trace_in_all_hops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R85."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    caplog.handler.addFilter(RequestFilter())
    with pipeline(replay_worker(tmp_path, {"token_ids": ids_of("x")})) as client, caplog.at_level("INFO", "tandem.http"):
        client.post("/v1/chat/completions", json=chat(), headers={"X-Request-Id": "hop-1", "traceparent": trace})
    lines = {record.getMessage(): record for record in caplog.records if record.name == "tandem.http"}
    hops = ["/inference/v1/generate", "/v1/chat/completions", "/v1/chat/completions/derender", "/v1/chat/completions/render"]
    assert sorted(lines) == [f"POST {hop}" for hop in hops]
    assert {vars(line)["request_id"] for line in lines.values()} == {"hop-1"}
    assert {vars(line)["trace_id"] for line in lines.values()} == {trace.split("-")[1]}
