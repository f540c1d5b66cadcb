"""`--workers N`: several processes on one port, seen from outside as one service."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import psutil
import pytest

from service_kit.settings import ScalableSettings
from tests.deploy.files import clean_environment
from tests.tandem.servers import free_port

WORKERS = 2

pytestmark = pytest.mark.slow


@dataclass
class Scaled:
    process: subprocess.Popen[bytes]
    url: str

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def eventually(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def scaled() -> Iterator[Scaled]:
    with _running() as service:
        eventually(lambda: len(service.children()) == WORKERS and service.answers())
        yield service


@contextmanager
def _running() -> Iterator[Scaled]:
    port = free_port()
    command = [sys.executable, "-m", "tandem", "derender", "--port", str(port), "--workers", str(WORKERS)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=clean_environment())
    try:
        yield Scaled(process, f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def test_a_worker_that_dies_is_replaced(scaled: Scaled) -> None:
    victim = scaled.children()[0]
    victim.kill()
    eventually(lambda: len(scaled.children()) == WORKERS and victim.pid not in {each.pid for each in scaled.children()})
    assert scaled.answers()


def test_metrics_are_those_of_all(scaled: Scaled) -> None:
    for _ in range(20):
        httpx.post(f"{scaled.url}/v1/completions/derender", json=[], trust_env=False)
    text = httpx.get(f"{scaled.url}/metrics", trust_env=False).text
    counted = [line for line in text.splitlines() if line.startswith("tandem_requests_total") and 'status="400"' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 20


def test_what_a_dead_worker_was_doing_is_not_counted_for_ever(scaled: Scaled) -> None:
    host, port = scaled.url.removeprefix("http://").split(":")
    half_sent = b"POST /v1/completions/derender HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(half_sent)
        eventually(lambda: in_flight(scaled) >= 6)
        victims = scaled.children()
        for victim in victims:
            victim.kill()
        eventually(lambda: len(scaled.children()) == WORKERS and not {v.pid for v in victims} & {c.pid for c in scaled.children()})
    eventually(scaled.answers)
    eventually(lambda: in_flight(scaled) <= 1)


def in_flight(scaled: Scaled) -> float:
    text = httpx.get(f"{scaled.url}/metrics", trust_env=False).text
    return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("tandem_requests_in_flight "))


def test_a_signal_stops_them_all(scaled: Scaled) -> None:
    children = scaled.children()
    scaled.process.send_signal(signal.SIGTERM)
    assert scaled.process.wait(30) == 0
    assert not any(child.is_running() for child in children)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_none_is_left_when_the_parent_is_killed(scaled: Scaled) -> None:
    children = scaled.children()
    scaled.process.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert all(child.status() == psutil.STATUS_ZOMBIE for child in alive)


def test_what_is_wrong_is_told_once() -> None:
    command = [sys.executable, "-m", "tandem", "render", "--port", "0", "--workers", "3", "--model", "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("/nowhere") == 1


def test_there_is_a_process_for_each_core_unless_told() -> None:
    assert ScalableSettings().processes == len(os.sched_getaffinity(0))
    assert ScalableSettings(workers=3).processes == 3
