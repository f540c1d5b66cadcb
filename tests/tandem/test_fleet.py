"""Processes that live and die together."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil
import pytest
from rich.console import Console

from service_kit.parent import PARENT_PID, child_environment
from tandem.fleet import Fleet, NotReady, Service, ServiceDied
from tests.tandem.servers import fake


class Recorded:
    """A fleet and what it printed."""

    def __init__(self, stages: Sequence[Sequence[Service]]) -> None:
        self.output = io.StringIO()
        self.fleet = Fleet(stages, Console(file=self.output, width=40))


def running(recorded: Recorded) -> list[psutil.Process]:
    """The fleet's processes that live: this process's children with a command of one of its services."""
    commands = [list(service.command) for service in recorded.fleet.services]
    return [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE and each.cmdline() in commands]


def test_ready_then_stopped_stage_by_stage() -> None:
    recorded = Recorded([[fake("first")], [fake("second"), fake("third")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            await fleet.ready(20)
            assert len(running(recorded)) == 3
            await fleet.stop(10)

    asyncio.run(run())
    assert running(recorded) == []
    stopped = {name: float(at) for name, at in re.findall(r"(\w+) +│ told to stop at ([\d.]+)", recorded.output.getvalue())}
    assert stopped.keys() == {"first", "second", "third"}
    assert stopped["first"] < min(stopped["second"], stopped["third"])


def test_a_death_is_named_and_ends_the_others() -> None:
    recorded = Recorded([[fake("lives")], [fake("mortal", "dies")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            await fleet.death()

    with pytest.raises(ServiceDied, match=r"mortal died \(exit code 7\)"):
        asyncio.run(run())
    assert running(recorded) == []
    assert "mortal │ about to die" in recorded.output.getvalue()


def test_a_killed_service_is_told_by_its_signal() -> None:
    recorded = Recorded([[fake("victim")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            await fleet.ready(20)
            running(recorded)[0].kill()
            await fleet.death()

    with pytest.raises(ServiceDied, match="killed by SIGKILL"):
        asyncio.run(run())


def test_not_ready_in_time_names_the_service_and_what_it_said() -> None:
    recorded = Recorded([[fake("slow", "never-ready")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            await fleet.ready(3)

    with pytest.raises(NotReady, match=r"slow was not ready after 3 s; .*503"):
        asyncio.run(run())
    assert running(recorded) == []


def test_what_does_not_stop_is_killed() -> None:
    recorded = Recorded([[fake("deaf", "deaf")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            await fleet.ready(20)
            started = time.monotonic()
            await fleet.stop(0.5)
            assert time.monotonic() - started < 5

    asyncio.run(run())
    assert running(recorded) == []


def test_lines_of_any_length_and_json_lines() -> None:
    code = "print('x' * 300000); print('{\"level\": \"info\"}'); import time; time.sleep(60)"
    recorded = Recorded([[Service("talker", [sys.executable, "-c", code], "http://127.0.0.1:1")]])

    async def run() -> None:
        async with recorded.fleet as fleet:
            await fleet.start()
            async with asyncio.timeout(20):
                while "level" not in recorded.output.getvalue():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    asyncio.run(run())
    lines = recorded.output.getvalue().splitlines()
    assert lines == ["talker │ " + "x" * 300000, '{"service": "talker", "level": "info"}']


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread polls; only the kernel's way is tried here")
def test_a_child_ends_with_a_parent_that_was_killed() -> None:
    child = (
        "from service_kit.parent import end_with_parent; end_with_parent(); import time; print('on', flush=True); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys; from service_kit.parent import child_environment;"
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], env=os.environ | child_environment(), stdout=subprocess.PIPE);"
        "c.stdout.readline(); print(c.pid, flush=True); c.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        orphan = psutil.Process(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
        gone, _ = psutil.wait_procs([orphan], timeout=5)
    assert gone or orphan.status() == psutil.STATUS_ZOMBIE


def test_only_a_child_of_ours_is_told_its_parent() -> None:
    assert child_environment() == {PARENT_PID: str(os.getpid())}
    assert PARENT_PID not in os.environ
