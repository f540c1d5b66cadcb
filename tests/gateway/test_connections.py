"""The gateway's connections: many at once, given up at any moment, to servers of every kind."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from gateway.connections import transport
from gateway.metrics import GatewayMetrics
from gateway.replicas import Replicas
from gateway.upstreams import Unreachable, Upstream
from service_kit.metrics import Metrics
from tests.live import serving

open_streams = 0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    app = FastAPI()

    @app.post("/")
    async def answer() -> Response:
        return Response(b"x" * 2000)

    @app.post("/slow")
    async def slow() -> Response:
        await asyncio.sleep(0.5)
        return Response(b"y")

    @app.post("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            global open_streams
            open_streams += 1
            try:
                while True:
                    yield b"z" * 100
                    await asyncio.sleep(0.01)
            finally:
                open_streams -= 1

        return StreamingResponse(parts())

    with serving(app) as url:
        yield url


def upstream(client: httpx.AsyncClient, address: str) -> Upstream:
    return Upstream("derender", client, Replicas([address]), GatewayMetrics(Metrics("gateway")))


def busy(client: httpx.AsyncClient) -> int:
    transport: Any = client._transport
    return len(transport.client.connector._acquired)


def test_none_is_lost_when_calls_are_cancelled_at_any_moment(address: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=transport()) as client:
            service = upstream(client, address)
            await service.post("/", b"{}")
            cut = 0
            for turns in [*range(60), *(random.Random(0).randrange(200) for _ in range(100))]:
                task = asyncio.ensure_future(service.post("/", b"{}"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                cut += isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
                assert busy(client) == 0
            assert cut > 20
            assert (await service.replicas.ordered())[0].running == 0

    asyncio.run(run())


def test_a_stream_that_is_left_ends_at_the_server(address: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=transport()) as client:
            async with await upstream(client, address).stream("/stream", b"{}") as live:
                async for _ in live.chunks():
                    break
            assert busy(client) == 0
            deadline = time.monotonic() + 5
            while open_streams:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_hundreds_of_calls_run_at_once(address: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=transport(), timeout=30) as client:
            service = upstream(client, address)
            begun = time.monotonic()
            answers = await asyncio.gather(*(service.post("/slow", b"{}") for _ in range(300)))
            assert set(answers) == {b"y"}
            # A hundred at a time would take three turns of half a second, and all of them several.
            assert time.monotonic() - begun < 5

    asyncio.run(run())


@contextmanager
def answering(words: bytes) -> Iterator[str]:
    """A server of a few bytes, whoever asks what."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65536)
                    peer.sendall(words)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
    ],
    ids=["nothing", "no HTTP", "cut short", "no chunk", "endless header", "no gzip"],
)
def test_an_answer_that_is_none_is_an_unreachable_service(words: bytes) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=transport(), timeout=5) as client:
            with answering(words) as address, pytest.raises(Unreachable):
                await upstream(client, address).post("/", b"{}")

    asyncio.run(run())


def test_a_silent_service_is_given_up_after_its_time(address: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=transport(), timeout=0.1) as client:
            with pytest.raises(Unreachable):
                await upstream(client, address).post("/slow", b"{}")

    asyncio.run(run())
