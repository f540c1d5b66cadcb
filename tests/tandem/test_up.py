"""`tandem up` as a process: four services up together and down together. The replay engine stands in for torch."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.deploy.files import clean_environment

NAMES = ("gateway", "render", "worker", "derender")
COMMANDS = {"gateway": "gateway", "render": "render", "worker": "generate", "derender": "derender"}
FREE_PORTS = [f"--{name}-port=0" for name in NAMES]
READY = "Ctrl-C stops it."
START_SECONDS = 90
STOP_SECONDS = 30


@dataclass
class Up:
    """A running `tandem up` and the files that its output goes to."""

    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while text not in self.output.read_text() + self.errors.read_text():
            assert self.process.poll() is None, f"up ended with {self.process.returncode}:\n{self.errors.read_text()}"
            assert time.monotonic() < deadline, f"no {text!r}:\n{self.errors.read_text()}"
            time.sleep(0.1)

    @property
    def addresses(self) -> dict[str, str]:
        return dict(re.findall(r"^  ([\w-]+) +(http://\S+)$", self.output.read_text(), re.M))

    def services(self) -> dict[str, psutil.Process]:
        """The child processes, by service."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):  # it may have ended since
                line = child.cmdline()
                found.update({name: child for name, command in COMMANDS.items() if line[2:4] == ["tandem", command]})
        return found

    def end(self, signum: int) -> int:
        self.process.send_signal(signum)
        return self.process.wait(STOP_SECONDS)


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[Up]:
    output, errors = folder / "output", folder / "errors"
    command = [sys.executable, "-m", "tandem", "up", "--engine", "replay", *FREE_PORTS, *flags]
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=clean_environment())
    try:
        yield Up(process, output, errors)
    finally:
        process.kill()
        process.wait()


def gone(processes: list[psutil.Process], seconds: float = STOP_SECONDS) -> bool:
    """Whether they have ended. (An orphan that nobody reaps is a zombie: it has ended as well.)"""
    _, alive = psutil.wait_procs([each for each in processes if each.is_running()], timeout=seconds)
    return all(each.status() == psutil.STATUS_ZOMBIE for each in alive)


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_all_are_ready_and_a_signal_stops_them_all(tmp_path: Path, signum: int) -> None:
    with running(tmp_path) as up:
        up.wait_for(READY)
        assert up.addresses.keys() == set(NAMES)
        for address in up.addresses.values():
            assert httpx.get(f"{address}/health", trust_env=False).json()["status"] == "ok"
        assert f"curl {up.addresses['gateway']}/v1/chat/completions" in up.output.read_text()
        services = list(up.services().values())
        assert len(services) == 4
        assert up.end(signum) == 0
        assert gone(services, 0)
        marks = {line.partition("│")[0].strip() for line in up.errors.read_text().splitlines() if "│" in line}
        assert marks == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "gateway"])
def test_one_death_stops_the_rest_and_is_named(tmp_path: Path, victim: str) -> None:
    with running(tmp_path) as up:
        up.wait_for(READY)
        services = up.services()
        services[victim].kill()
        assert up.process.wait(STOP_SECONDS) == 1
        assert f"{victim} died (killed by SIGKILL)" in up.errors.read_text()
        assert gone(list(services.values()), 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_no_orphans_when_up_itself_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.wait_for(READY)
        services = list(up.services().values())
        up.process.kill()
        assert gone(services)


@pytest.mark.slow
def test_a_signal_while_starting_stops_what_has_started(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        deadline = time.monotonic() + START_SECONDS
        while len(up.services()) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        services = list(up.services().values())
        assert up.end(signal.SIGINT) == 0
        assert gone(services, 0)
        assert READY not in up.output.read_text()


@pytest.mark.slow
def test_derender_replicas(tmp_path: Path) -> None:
    with running(tmp_path, "--derender-replicas", "2") as up:
        up.wait_for(READY)
        assert up.addresses.keys() == {"gateway", "render", "worker", "derender-1", "derender-2"}
        assert up.end(signal.SIGINT) == 0


def test_taken_ports_are_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with running(tmp_path, f"--render-port={port}", f"--worker-port={port}") as up:
            assert up.process.wait(START_SECONDS) == 2
            (line,) = up.errors.read_text().splitlines()
    assert line.startswith(f"tandem: render cannot listen on 127.0.0.1:{port}: ")
    assert "--render-port" in line
    assert "--worker-port" in line


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with running(tmp_path, "--model", str(tmp_path / "nothing")) as up:
        assert up.process.wait(START_SECONDS) == 2
        (line,) = up.errors.read_text().splitlines()
    assert line.startswith("tandem: ")
    assert str(tmp_path / "nothing") in line


@pytest.mark.slow
def test_an_api_key_is_asked_for_and_is_in_no_command_line(tmp_path: Path) -> None:
    with running(tmp_path, "--api-key", "a-key") as up:
        up.wait_for(READY)
        models = f"{up.addresses['gateway']}/v1/models"
        assert httpx.get(models, trust_env=False).status_code == 401
        assert httpx.get(models, headers={"Authorization": "Bearer a-key"}, trust_env=False).status_code == 200
        assert not any("a-key" in argument for service in up.services().values() for argument in service.cmdline())
        assert os.environ.get("TANDEM_API_KEY") is None


@pytest.mark.slow
def test_a_running_stream_ends_as_it_should_when_up_is_told_to_stop(tmp_path: Path) -> None:
    body = {"prompt": "Once", "max_tokens": 40, "ignore_eos": True, "stream": True}
    with running(tmp_path, "--replay-tokens-per-second", "20") as up:
        up.wait_for(READY)
        url = f"{up.addresses['gateway']}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=30, trust_env=False) as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            first = next(lines)
            up.process.send_signal(signal.SIGINT)
            rest = list(lines)
        assert "error" not in first
        assert rest[-1] == "data: [DONE]"
        assert any('"finish_reason":"length"' in line for line in rest)
        assert up.process.wait(STOP_SECONDS) == 0
