"""A service that takes templates from requests, over a real port: whatever one of them does, the others are answered."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from protocol.errors import BadRequest, Overloaded
from render_service import guests as guests_module
from render_service.app import RenderSettings, create_app
from tests.bombs import IN_ONE_STEP, IN_STEPS, NO_PROGRAM, UNSEEN
from tests.live import serving
from tests.render.rendering import render_chat, renderer, say
from tests.tandem.servers import free_port
from tests.tokenizers import TINY_TEMPLATE, folder

CHAT = "/v1/chat/completions/render"
SECONDS = 2.0
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HELD = UNSEEN["the same in tests"][0]
BOMBS = {
    "loops": IN_STEPS["nested loops"],
    "held": UNSEEN["the same in tests"],
    "lists of numbers": UNSEEN["lists of numbers"],
    "a power": IN_ONE_STEP["a power"],
    "a long program": NO_PROGRAM["a long program"],
}


@dataclass
class Live:
    url: str
    process: subprocess.Popen[bytes]

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def post(self, **request: Any) -> httpx.Response:
        return httpx.post(self.url + CHAT, json=say("hi", **request), timeout=60)


@contextmanager
def live(log: Path) -> Iterator[Live]:
    port = free_port()
    flags = ["--workers", "1", "--trust-request-chat-template", "--template-timeout", str(SECONDS), "--template-max-mib", "256"]
    command = [sys.executable, "-m", "tandem", "render", "--model", str(folder("tiny")), "--port", str(port), *flags]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink)
    server = Live(f"http://127.0.0.1:{port}", process)
    try:
        while True:
            try:
                httpx.get(server.url + "/health")
                break
            except httpx.TransportError:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("guests") / "log") as started:
        yield started


def in_background(work: Callable[[], Any]) -> threading.Thread:
    """Runs `work`, which a server that goes away may cut off."""

    def run() -> None:
        with suppress(httpx.TransportError):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def ended(children: list[psutil.Process]) -> bool:
    """Whether all of them end soon. What has nobody to reap it stays as a zombie."""
    _, left = psutil.wait_procs(children, timeout=5)
    return all(child.status() == psutil.STATUS_ZOMBIE for child in left if child.is_running())


def test_a_guest_is_rendered_as_the_models_own(server: Live) -> None:
    own = httpx.post(server.url + CHAT, json=say("hi")).json()
    guest = server.post(chat_template=TINY_TEMPLATE)
    assert guest.status_code == 200
    assert guest.json()["token_ids"] == own["token_ids"]
    assert httpx.get(server.url + "/health").status_code == 200


@pytest.mark.slow  # takes times
@pytest.mark.parametrize(("source", "says"), BOMBS.values(), ids=BOMBS)
def test_while_a_bomb_runs_everyone_else_is_answered(server: Live, source: str, says: str) -> None:
    assert server.post(chat_template=PLAIN).status_code == 200
    answers: list[httpx.Response] = []
    bomb = in_background(lambda: answers.append(server.post(chat_template=source)))
    health, own, guest = [], [], []
    with httpx.Client(base_url=server.url, timeout=30) as client:
        lasts = True
        while lasts:
            lasts = bomb.is_alive()
            for times, ask in (
                (health, lambda: client.get("/health")),
                (own, lambda: client.post(CHAT, json=say("hi"))),
                (guest, lambda: client.post(CHAT, json=say("hi", chat_template=PLAIN))),
            ):
                started = time.perf_counter()
                assert ask().status_code == 200
                times.append(time.perf_counter() - started)
            time.sleep(0.01)
    error = answers[0].json()["error"]
    assert (answers[0].status_code, error["param"], error["type"]) == (400, "chat_template", "BadRequestError")
    assert any(part in error["message"] for part in says.split("|")), error
    assert error["message"].startswith("chat_template: the chat template ")
    assert max(health) < 0.3, sorted(health)[-5:]
    assert max(own) < 0.5, sorted(own)[-5:]
    assert max(guest) < 1.5, sorted(guest)[-5:]  # it may be the one for which a process is started


@pytest.mark.slow  # takes times
def test_many_bombs_at_once_do_not_keep_the_models_template_waiting(server: Live) -> None:
    statuses: list[int] = []
    bombs = [in_background(lambda: statuses.append(server.post(chat_template=HELD).status_code)) for _ in range(6)]
    time.sleep(0.3)
    waits = []
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for _ in range(20):
            started = time.perf_counter()
            assert client.post(CHAT, json=say("hi")).status_code == 200
            waits.append(time.perf_counter() - started)
    for bomb in bombs:
        bomb.join()
    assert max(waits) < 0.5, waits
    assert set(statuses) <= {400, 503}
    assert len(server.children) <= guests_module.THREADS
    assert server.post(chat_template=PLAIN).status_code == 200


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_no_process_is_left_when_the_service_ends(tmp_path: Path, how: str) -> None:
    with live(tmp_path / "log") as server:
        assert server.post(chat_template=PLAIN).status_code == 200
        bomb = in_background(lambda: httpx.post(server.url + CHAT, json=say("hi", chat_template=HELD)))
        time.sleep(0.3)
        assert server.post(chat_template=PLAIN).status_code == 200
        children = server.children
        assert len(children) == 2
        getattr(server.process, how)()
        started = time.monotonic()
        assert server.process.wait(timeout=20) == (0 if how == "terminate" else -9)
        assert time.monotonic() - started < SECONDS + 5
        assert ended(children)
        bomb.join(timeout=10)


def test_a_process_that_dies_is_a_503(server: Live) -> None:
    assert server.post(chat_template=PLAIN).status_code == 200
    answers: list[httpx.Response] = []
    bomb = in_background(lambda: answers.append(server.post(chat_template=IN_STEPS["nested loops"][0])))
    time.sleep(0.5)
    for child in server.children:
        child.kill()
    bomb.join()
    assert answers[0].status_code == 503
    assert "ended before it had an answer; try again" in answers[0].json()["error"]["message"]
    assert int(answers[0].headers["Retry-After"]) > 0
    assert server.post(chat_template=PLAIN).status_code == 200


def test_a_line_that_is_full_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests_module, "_LINE", 0)
    settings = RenderSettings(model=str(folder("tiny")), trust_request_chat_template=True, template_timeout=1.5)
    app = create_app(settings)
    with serving(app) as url:
        bombs = [
            in_background(lambda: httpx.post(url + CHAT, json=say("hi", chat_template=HELD), timeout=30))
            for _ in range(app.state.guests.size)
        ]
        time.sleep(0.7)
        answer = httpx.post(url + CHAT, json=say("hi", chat_template=PLAIN))
        assert answer.status_code == 503
        assert "too many requests with a chat template of their own" in answer.json()["error"]["message"]
        assert httpx.post(url + CHAT, json=say("hi")).status_code == 200
        for bomb in bombs:
            bomb.join()
        assert httpx.post(url + CHAT, json=say("hi", chat_template=PLAIN)).status_code == 200


@pytest.mark.slow  # takes times
def test_nobody_waits_longer_for_a_process_than_a_template_may_take() -> None:
    settings = RenderSettings(model=str(folder("tiny")), trust_request_chat_template=True, template_timeout=1)

    def timed(source: str) -> tuple[int, float]:
        started = time.monotonic()
        answer = httpx.post(url + CHAT, json=say("hi", chat_template=source), timeout=60)
        if answer.status_code == 503:
            assert answer.json()["error"]["message"] == "no process was free for 1 s to run the request's chat template"
            assert int(answer.headers["Retry-After"]) > 0
        return answer.status_code, time.monotonic() - started

    app = create_app(settings)
    many = 10 * app.state.guests.size
    with serving(app) as url, ThreadPoolExecutor(many) as pool:
        assert timed(PLAIN)[0] == 200
        bombs = [pool.submit(timed, f"{HELD}{{# {number} #}}") for number in range(many - 1)]
        time.sleep(0.2)
        asked = [pool.submit(timed, PLAIN).result(), *(bomb.result() for bomb in bombs)]
        assert {status for status, _ in asked} >= {400, 503}
        assert max(seconds for _, seconds in asked) < 5, asked
        assert timed(PLAIN)[0] == 200


def test_no_process_is_left_when_an_app_is_shut_down() -> None:
    app = create_app(RenderSettings(model=str(folder("tiny")), trust_request_chat_template=True))
    with serving(app) as url:
        assert app.state.guests.pids == []
        assert httpx.post(url + CHAT, json=say("hi", chat_template=PLAIN)).status_code == 200
        (pid,) = app.state.guests.pids
    assert not psutil.pid_exists(pid)


def test_the_limits_are_settings() -> None:
    given = RenderSettings(template_timeout=3, template_max_chars=2000, template_max_mib=64)
    limits = given.template_limits
    assert (limits.seconds, limits.characters, limits.mib) == (3, 2000, 64)
    app = create_app(RenderSettings(model=str(folder("tiny")), template_max_chars=2000))
    with pytest.raises(BadRequest, match="messages: the chat template wrote more than 2000 characters") as caught:
        render_chat(app.state.renderer, **say("x" * 2001))
    assert caught.value.param == "messages"


def test_what_cannot_be_run_is_an_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    guests = guests_module.Guests(RenderSettings().template_limits)
    with pytest.raises(Overloaded, match="cannot be started"):
        render_chat(replace(renderer("tiny"), guest_template=guests.template), **say("x", chat_template=PLAIN))
