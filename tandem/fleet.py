"""Processes that live and die together: started, watched, shown and stopped as one."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

import httpx
from rich.console import Console
from rich.text import Text

from service_kit import parent

_POLL_SECONDS = 0.1
_READ_BYTES = 65536


class FleetError(Exception):
    """The fleet cannot go on. The message names the service and says what happened to it."""


class ServiceDied(FleetError):
    """A service ended that nobody had told to."""


class NotReady(FleetError):
    """A service runs, but did not become healthy in time."""


@dataclass(frozen=True)
class Service:
    """What to run, where it answers, and what its log lines are marked with. `environment` is added to this process's own."""

    name: str
    command: Sequence[str]
    url: str
    colour: str = "white"
    environment: dict[str, str] = field(default_factory=dict)


class Fleet:
    """Runs services whose log lines go to `console`. Leaving the `async with` kills what still runs, process groups and all.

    `stages` is the order of stopping: a stage is told to stop when the one before it has ended. Every child leads its own process
    group, so that a terminal's Ctrl-C reaches this process alone and the order is kept.
    """

    def __init__(self, stages: Sequence[Sequence[Service]], console: Console) -> None:
        self._stages = stages
        self._console = console
        self._width = max(len(service.name) for stage in stages for service in stage)
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Fleet":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()
        await asyncio.gather(*(process.wait() for process in self._running.values()), *self._pumps)

    @property
    def services(self) -> list[Service]:
        return [service for stage in self._stages for service in stage]

    async def start(self) -> None:
        for service in self.services:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **service.environment, **parent.child_environment(), "PYTHONUNBUFFERED": "1"},
            )
            assert process.stdout is not None
            self._running[service.name] = process
            self._pumps.append(asyncio.create_task(self._show(service, process.stdout)))

    async def ready(self, seconds: float) -> None:
        """Returns when every `/health` has answered 200. Raises `NotReady` when one has not by then."""
        deadline = time.monotonic() + seconds
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            await asyncio.gather(*(_healthy(client, service, deadline, seconds) for service in self.services))

    async def death(self) -> None:
        """Waits until a service ends by itself, and raises `ServiceDied`."""
        waits = {asyncio.create_task(process.wait()): name for name, process in self._running.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        ended = done.pop()
        raise ServiceDied(f"{waits[ended]} died ({_fate(ended.result())}), so the others were stopped")

    async def stop(self, seconds: float) -> None:
        """Stops stage after stage; what has not ended `seconds` after it was told to is killed."""
        for stage in self._stages:
            processes = [self._running[service.name] for service in stage if service.name in self._running]
            for process in processes:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*(process.wait() for process in processes))
            except TimeoutError:
                self._console.print(f"tandem: not stopped after {seconds:.0f} s, killed", style="yellow")
                _kill(processes)

    def kill(self) -> None:
        _kill(self._running.values())

    async def _show(self, service: Service, stream: asyncio.StreamReader) -> None:
        mark = Text(f"{service.name:<{self._width}} │ ", style=service.colour)
        async for line in _lines(stream):
            if line.startswith("{"):  # JSON logs stay JSON, one object a line
                self._console.file.write(f'{{"service": {json.dumps(service.name)}, {line[1:]}\n')
                self._console.file.flush()
            else:
                self._console.print(mark + Text(line), soft_wrap=True)


async def _healthy(client: httpx.AsyncClient, service: Service, deadline: float, seconds: float) -> None:
    seen = "no answer"
    while time.monotonic() < deadline:
        try:
            answer = await client.get(f"{service.url}/health")
        except httpx.HTTPError as error:
            seen = str(error) or type(error).__name__
        else:
            if answer.status_code == 200:
                return
            seen = f"{answer.status_code} {answer.text}"
        await asyncio.sleep(_POLL_SECONDS)
    raise NotReady(f"{service.name} was not ready after {seconds:.0f} s; {service.url}/health: {seen}")


def _kill(processes: Iterable[asyncio.subprocess.Process]) -> None:
    for process in processes:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
                os.killpg(process.pid, signal.SIGKILL)


def _fate(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of any length (asyncio's own `readline` gives up on long ones)."""
    rest = b""
    while data := await stream.read(_READ_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
