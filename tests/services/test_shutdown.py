"""A service past its drain limit: who waits is told so, and the process ends soon, whatever its threads are at."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.tandem.servers import free_port
from tests.tokenizers import folder

DRAIN = 0.5
SERVICE = """
import asyncio, sys, time
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
from service_kit import logs
from service_kit.app import build_app
from service_kit.disconnect import while_connected
from service_kit.lifecycle import listen, run
from service_kit.offload import BIG, offload
from service_kit.settings import ServiceSettings
from service_kit.websocket import converse

router = APIRouter()

def work():
    time.sleep(30)
    return "done"

@router.post("/thread")
async def thread(request: Request):
    return Response(await offload(work, size=BIG))

@router.post("/wait")
async def wait(request: Request):
    await request.body()
    return Response(await while_connected(request, asyncio.sleep(30, "done")))

@router.post("/begun")
async def begun():
    async def parts():
        yield "begun"
        await asyncio.sleep(30)
    return StreamingResponse(parts())

@router.websocket("/talk")
async def talk(websocket: WebSocket):
    await converse(websocket, websocket.app.state.lifecycle, lambda text: work())

settings = ServiceSettings(port=int(sys.argv[1]), drain_seconds=float(sys.argv[2]))
logs.configure("console", "info")
run(build_app("test", "", settings, [router]), settings, listen(settings))
"""


Started = AbstractContextManager[tuple[str, "subprocess.Popen[bytes]"]]


def serving(log: Path, drain: float) -> Started:
    port = free_port()
    return started(log, port, "-c", SERVICE, str(port), str(drain))


@contextmanager
def started(log: Path, port: int, *command: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    with log.open("wb") as sink:
        process = subprocess.Popen([sys.executable, *command], stderr=sink)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(url + "/health")
                break
            except httpx.TransportError:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
        yield url, process
    finally:
        process.kill()
        process.wait()


def is_told(answer: httpx.Response) -> bool:
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (503, "this server is shutting down")
    assert (error["type"], error["code"], error["param"]) == ("ServiceUnavailableError", 503, None)
    return int(answer.headers["Retry-After"]) > 0 and bool(answer.headers["X-Request-Id"])


def ends_well(process: "subprocess.Popen[bytes]", log: Path, within: float) -> None:
    began = time.monotonic()
    assert process.wait(timeout=30) == 0
    assert time.monotonic() - began < within
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("drain", [0.0, DRAIN])
def test_who_waits_is_told_and_the_process_ends(tmp_path: Path, drain: float) -> None:
    log = tmp_path / "log"
    with (
        serving(log, drain) as (url, process),
        ThreadPoolExecutor(3) as pool,
        connect(url.replace("http", "ws") + "/talk") as talk,
    ):
        waiting = [pool.submit(httpx.post, url + path, timeout=40) for path in ("/thread", "/thread", "/wait")]
        talk.send("x" * 5000)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert all(is_told(each.result()) for each in waiting)
        with pytest.raises(ConnectionClosed) as closed:
            talk.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in (1001, 1012)
        ends_well(process, log, 4)


def test_an_answer_that_has_begun_is_cut_at_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(log, DRAIN) as (url, process), httpx.stream("POST", url + "/begun", timeout=40) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"begun"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            list(parts)
        ends_well(process, log, 4)


@pytest.mark.slow
def test_a_render_service_ends_in_the_middle_of_a_big_body(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    flags = ["--model", str(folder("qwen3")), "--max-model-len", "100000000", "--workers", "1", "--drain-seconds", str(DRAIN)]
    text = "".join(f"{number * 7919 % 10_000_019} unlike the one before\n" for number in range(300_000))
    body = json.dumps({"messages": [{"role": "user", "content": text}]})
    with started(log, port, "-m", "tandem", "render", *flags, "--port", str(port)) as (url, process), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, url + "/v1/chat/completions/render", content=body, timeout=60)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert is_told(waiting.result())
        ends_well(process, log, 4)
