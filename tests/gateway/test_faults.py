"""What the gateway makes of workers that break, refuse, fail or fall silent, and of clients that leave."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from protocol.generate import FinishReason
from protocol.sse import DONE, encode
from tests.gateway.kit import (
    Cut,
    JsonObject,
    Scripted,
    chat,
    content_of,
    done,
    events_of,
    failure,
    ids_of,
    pipeline,
    refusal,
    replay_worker,
    saying,
    standing,
    token,
)
from tests.live import serving
from tests.tokenizers import profile

BREAKS = range(1, 7)
TEXT = "The capital of France is Paris."


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("break_after", range(1, len(["The", "capital", "of", "France", "is", "Paris."]) + 1))
def test_a_stream_outlives_its_worker(break_after: int) -> None:
    """No token is lost or repeated: the next worker goes on after the ids that came, with the seed the first one drew."""
    broken, spare = Scripted(saying(TEXT, break_after=break_after)), Scripted(saying(TEXT))
    with pipeline(broken, spare) as client:
        for _ in range(2):  # whichever of them is asked first
            events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
            assert events[-1] == DONE
            assert content_of(events) == TEXT
    resumed = [request for request in spare.asked if request.get("output_token_ids")]
    assert [request["output_token_ids"] for request in resumed] == [ids_of(TEXT)[:break_after]]
    assert resumed[0]["sampling_params"]["seed"] == 7


def test_the_only_worker_may_come_back() -> None:
    """A connection that breaks is taken up again, where there is no other worker by the same."""
    attempts = iter([2, 4, None])
    worker = Scripted(lambda request: saying(TEXT, break_after=next(attempts))(request))
    with pipeline(worker) as client:
        assert content_of(events_of(client.post("/v1/chat/completions", json=chat(stream=True)))) == TEXT
    assert [len(request.get("output_token_ids") or []) for request in worker.asked] == [0, 2, 4]


def test_a_worker_that_always_breaks_is_an_error_event_in_the_end() -> None:
    worker = Scripted(saying(TEXT, break_after=1))
    with pipeline(worker) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
    assert content_of(events[:-1]) == "The"
    assert events[-1]["error"]["type"] == "UpstreamError"


def test_a_foreign_worker_is_not_resumed() -> None:
    """vLLM would begin anew: its chunks have no type, so a break there is an error, not a repetition."""

    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        yield encode('{"request_id":"v","choices":[{"index":0,"token_ids":[504]}]}')
        await asyncio.sleep(0.01)
        raise Cut

    worker = Scripted(play)
    with pipeline(worker) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
    assert "error" in events[-1]
    assert len(worker.asked) == 1


def test_vllms_stream_is_read_as_ours() -> None:
    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        for piece in (
            '{"request_id":"v","choices":[{"index":0,"token_ids":[504,2365],"finish_reason":null}]}',
            '{"request_id":"v","choices":[{"index":0,"token_ids":[6354,2],"finish_reason":"stop","stop_reason":2}]}',
            '{"request_id":"v","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}',
            DONE,
        ):
            yield encode(piece)

    with pipeline(Scripted(play)) as client:
        body = chat(stream=True, stream_options={"include_usage": True})
        *chunks, last, _ = events_of(client.post("/v1/chat/completions", json=body))
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert content_of(chunks) == profile("smollm2").tokenizer.decode([504, 2365, 6354])
    assert last["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_worker_is_passed_over_for_the_next(stream: bool) -> None:
    full = Scripted(saying(TEXT), refuse=refusal(503, "queue full", **{"Retry-After": "3"}))
    with pipeline(full, Scripted(saying(TEXT))) as client:
        for _ in range(3):
            answer = client.post("/v1/chat/completions", json=chat(stream=True, stop=["zzz"]))
            assert answer.status_code == 200
    with pipeline(full) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=stream))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
        assert answer.json()["error"]["message"] == "queue full"


def test_an_error_before_the_first_chunk_is_a_status_and_later_an_event() -> None:
    async def at_once(request: JsonObject) -> AsyncIterator[bytes]:
        yield failure(request, "no luck")

    async def later(request: JsonObject) -> AsyncIterator[bytes]:
        yield token(request, 0, 0, ids_of("Hi")[0])
        await asyncio.sleep(0.05)
        yield failure(request, "no more luck")

    with pipeline(Scripted(at_once)) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=True))
        assert (answer.status_code, answer.json()["error"]["message"]) == (500, "no luck")
    with pipeline(Scripted(later)) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
        assert [event.get("error", {}).get("message") for event in events] == [None, "no more luck"]


@pytest.mark.parametrize(
    "nonsense", [b"data: {\n\n", b'data: {"type":"what"}\n\n', b"data: 5\n\n", b'data: {"choices":[{"index":-1}]}\n\n']
)
def test_a_worker_that_talks_nonsense_is_a_502(nonsense: bytes) -> None:
    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        yield nonsense

    with pipeline(Scripted(play)) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=True))
        assert answer.status_code == 502
        assert "the worker" in answer.json()["error"]["message"]


def test_bytes_in_any_slices(tmp_path: Path) -> None:
    """R13: a worker whose events come a byte at a time, characters and line ends cut in two."""

    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        output = ids_of("日本 ok")
        events = [token(request, 0, n, i) for n, i in enumerate(output)] + [done(request, 0, len(output)), encode(DONE)]
        for byte in b"".join(events).replace(b"\n", b"\r\n"):
            yield bytes([byte])

    with pipeline(Scripted(play)) as client:
        assert content_of(events_of(client.post("/v1/chat/completions", json=chat(stream=True)))) == "日本 ok"


def test_a_stop_string_ends_the_generation_on_the_worker() -> None:
    """R53: nobody computes what nobody will read."""

    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        for position in range(10_000):
            yield token(request, 0, position, ids_of("a")[0])
            await asyncio.sleep(0.005)

    worker = Scripted(play)
    with pipeline(worker) as client:
        for count, stream in enumerate([False, True], start=1):
            answer = client.post("/v1/chat/completions", json=chat(stream=stream, stop=["aaa"]))
            assert answer.status_code == 200
            until(lambda: worker.open_streams == 0)
            assert worker.left_early == count


async def _silent(request: JsonObject) -> AsyncIterator[bytes]:
    yield b": nothing yet\n\n"
    await asyncio.sleep(60)


async def _endless(request: JsonObject) -> AsyncIterator[bytes]:
    for position in range(100_000):
        yield token(request, 0, position, ids_of("a")[0])
        await asyncio.sleep(0.005)


def leave_after_half_a_second(client: httpx.Client, body: JsonObject) -> None:
    deadline = time.monotonic() + 0.5
    try:
        with client.stream("POST", "/v1/chat/completions", json=body, timeout=0.5) as answer:
            for _ in answer.iter_raw():
                if time.monotonic() > deadline:
                    return
    except httpx.ReadTimeout:
        return


@pytest.mark.parametrize("play", [_silent, _endless])
@pytest.mark.parametrize("body", [{"stream": True}, {"stop": ["zzz"]}])
def test_the_worker_is_left_when_the_client_leaves(
    play: Callable[[JsonObject], AsyncIterator[bytes]], body: dict[str, Any]
) -> None:
    """R75: during prefill, in the middle, streamed and not: within a second nobody works any more."""
    worker = Scripted(play)
    with pipeline(worker) as client:
        leave_after_half_a_second(client, chat(**body))
        assert worker.asked
        until(lambda: worker.open_streams == 0, 2.0)
        assert worker.left_early == 1
        metrics = client.get("/metrics").text
        assert "tandem_streams 0.0" in metrics


def test_a_dead_derender_replica_is_passed_over() -> None:
    worker = Scripted(saying(TEXT))
    with pipeline(worker, derenders=1) as alive:
        address = alive.get("/health").json()["services"]
        derender = next(name.split()[1] for name in address if name.startswith("derender"))
        with pipeline(worker, derender_url=f"http://127.0.0.1:9,{derender}") as client:
            for _ in range(4):
                assert content_of(events_of(client.post("/v1/chat/completions", json=chat(stream=True)))) == TEXT
            health = client.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "degraded")


def test_nobody_behind_the_gateway_is_a_502_and_an_unhealthy_gateway() -> None:
    with pipeline(Scripted(saying(TEXT)), render_url="http://127.0.0.1:9") as client:
        answer = client.post("/v1/chat/completions", json=chat())
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "UpstreamError")
        assert (client.get("/health").status_code, client.get("/health").json()["status"]) == (503, "down")


def test_a_worker_that_aborts_says_so() -> None:
    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        yield token(request, 0, 0, ids_of("Hi")[0])
        yield done(request, 0, 1, reason=FinishReason.ABORT)
        yield encode(DONE)

    with pipeline(Scripted(play)) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
        assert events[-2]["choices"][0]["finish_reason"] == "abort"


def test_many_streams_at_once_do_not_mix(tmp_path: Path) -> None:
    """Eight clients, two derender replicas, every text its own."""
    lines = [{"token_ids": ids_of(f"answer number {n} 日本 👩")} for n in range(8)]

    async def one(client: httpx.AsyncClient) -> str:
        answer = await client.post("/v1/chat/completions", json=chat(stream=True))
        return content_of(events_of(answer))

    async def all_of_them(url: str) -> list[str]:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            return await asyncio.gather(*(one(client) for _ in range(8)))

    with pipeline(replay_worker(tmp_path, *lines, replay_tokens_per_second=200.0), derenders=2) as client:
        texts = asyncio.run(all_of_them(str(client.base_url)))
    assert sorted(texts) == sorted(f"answer number {n} 日本 👩" for n in range(8))


UNUSABLE = [b"<html>", b"{}", b"null", b"[]", b'{"chunk":{},"stream_state":{}}', b'{"choices":5}', b""]


class Garbling:
    """A proxy before a service, whose answers are another's from the given call on."""

    def __init__(self, target: str, answer: bytes, *, after: int = 0, path: str = "") -> None:
        self.target, self.answer, self.after, self.path = target, answer, after, path
        self.calls = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/{path:path}")
        async def relay(path: str, request: Request) -> Response:
            self.calls += 1
            if self.calls > self.after:
                return Response(self.answer, media_type="application/json")
            async with httpx.AsyncClient() as client:
                answer = await client.post(f"{self.target}/{path}", content=await request.body())
            return Response(answer.content, status_code=answer.status_code, media_type="application/json")

        return app


@pytest.mark.parametrize("answer", UNUSABLE)
@pytest.mark.parametrize("kind", ["render", "derender"])
def test_a_service_that_answers_nonsense_is_a_502(kind: str, answer: bytes) -> None:
    render, (derender, _) = standing()
    target = {"render": render, "derender": derender}[kind]
    with serving(Garbling(target, answer).app()) as garbled, pipeline(Scripted(saying(TEXT)), **{f"{kind}_url": garbled}) as client:
        for body in (chat(stream=True), chat(stop=["zzz"])):
            refused = client.post("/v1/chat/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["type"]) == (502, "UpstreamError")


@pytest.mark.parametrize("answer", UNUSABLE)
def test_nonsense_in_the_middle_ends_the_stream_with_an_error(answer: bytes) -> None:
    """L6: one terminal, whatever happens."""
    _, (derender, _) = standing()
    garbling = Garbling(derender, answer, after=2)
    with serving(garbling.app()) as garbled, pipeline(Scripted(saying(TEXT)), derender_url=garbled) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
        assert [event.get("error", {}).get("type") for event in events[-1:]] == ["UpstreamError"]
        assert all("error" not in event for event in events[:-1])


@pytest.mark.parametrize(
    "answer", [b"<html>", b"{}", b"null", b'{"choices":5}', b'{"request_id":"r","choices":[{"index":0,"token_ids":[99999]}]}']
)
def test_a_worker_that_answers_nonsense_is_a_502_too(answer: bytes, tmp_path: Path) -> None:
    """Also where derender is the one to notice: it is not the client's fault."""
    garbling = Garbling("", answer)
    with pipeline(garbling.app()) as client:
        refused = client.post("/v1/chat/completions", json=chat())
        assert (refused.status_code, refused.json()["error"]["type"]) == (502, "UpstreamError")


def test_a_worker_that_miscounts_is_noticed() -> None:
    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        yield token(request, 0, 0, ids_of("Hi")[0])
        await asyncio.sleep(0.05)
        yield done(request, 0, 7)
        yield encode(DONE)

    with pipeline(Scripted(play)) as client:
        events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
        assert "token_index is 7" in events[-1]["error"]["message"]


def test_a_stream_outlives_a_worker_that_shuts_down() -> None:
    """A rolling restart is no worse than a crash: the farewell of a draining worker is an order to go elsewhere."""

    async def leaving(request: JsonObject) -> AsyncIterator[bytes]:
        for position, token_id in enumerate(ids_of(TEXT)[:3]):
            yield token(request, 0, position, token_id)
            await asyncio.sleep(0.02)
        yield failure(request, "shutting down", code=503)

    going, staying = Scripted(leaving), Scripted(saying(TEXT))
    with pipeline(going, staying) as client:
        for _ in range(2):
            events = events_of(client.post("/v1/chat/completions", json=chat(stream=True)))
            assert (content_of(events), events[-1]) == (TEXT, DONE)


def test_a_worker_that_shuts_down_with_no_other_is_a_503() -> None:
    async def leaving(request: JsonObject) -> AsyncIterator[bytes]:
        yield failure(request, "shutting down", code=503)

    with pipeline(Scripted(leaving)) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=True))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, 503)
        assert answer.headers["retry-after"]


@pytest.mark.parametrize("stream", [False, True])
def test_more_prompts_than_a_queue_holds(tmp_path: Path, stream: bool) -> None:
    """A request with many prompts takes its turns: a 503 would promise that a retry helps."""
    worker = replay_worker(tmp_path, {"token_ids": ids_of("ok")}, max_num_seqs=4, max_queue=6, replay_tokens_per_second=500.0)
    with pipeline(worker) as client:
        answer = client.post("/v1/completions", json={"prompt": ["Hi"] * 60, "max_tokens": 2, "stream": stream})
        assert answer.status_code == 200
        if not stream:
            assert [choice["index"] for choice in answer.json()["choices"]] == list(range(60))


def test_a_client_that_waits_long_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.routes.KEEP_ALIVE_SECONDS", 0.1)
    monkeypatch.setattr("service_kit.streaming.KEEP_ALIVE_SECONDS", 0.1)

    async def slow(request: JsonObject) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.6)
        yield token(request, 0, 0, ids_of("Hi")[0])
        yield done(request, 0, 1)
        yield encode(DONE)

    async def failing(request: JsonObject) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.3)
        yield failure(request, "no luck")

    with pipeline(Scripted(slow)) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=True))
        assert answer.text.startswith(": keep-alive\n\n")
        assert content_of(events_of(answer)) == "Hi"
    with pipeline(Scripted(failing)) as client:
        answer = client.post("/v1/chat/completions", json=chat(stream=True))
        assert (answer.status_code, events_of(answer)[-1]["error"]["message"]) == (200, "no luck")
