"""`tandem bench`, from its flags to its exit code."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import uvloop
from rich.console import Console

from tandem.bench import files, plots, report
from tandem.bench.errors import BenchError
from tandem.bench.load import ClosedLoop, OpenLoop, Sender, Watched, run_closed, run_open, warm_up
from tandem.bench.plan import Plan, lines_of, plan_of
from tandem.bench.progress import shown
from tandem.bench.saturation import watch_loop
from tandem.bench.seen import Attempt
from tandem.bench.settings import BenchSettings
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.summary import Point, name_of, point
from tandem.bench.targets import Target
from tandem.bench.targets.choice import target_of

ALL_FAILED, INTERRUPTED = 1, 130
_FOR_NOW = (408, 429)
"""Refusals of the 4xx kind that say nothing against a request itself."""


@dataclass
class Measured:
    """What there is so far. `interrupted`: it was stopped before its end."""

    points: list[Point] = field(default_factory=list)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return 0 if any(each.requests.completed for each in self.points) else ALL_FAILED


def bench(settings: BenchSettings) -> int:
    """0: measured, if with failures; 1: every request failed; 130: stopped by Ctrl-C, and what had been measured is written down.
    Raises `BenchError` where it cannot begin."""
    return uvloop.run(_bench(settings))


async def _bench(settings: BenchSettings) -> int:
    # Without markup: messages of servers, and folders, have brackets of their own.
    out, err = (Console(stderr=stderr, markup=False, highlight=False) for stderr in (False, True))
    started = datetime.now().astimezone()
    lines = lines_of(settings)
    clock = Stopwatch()
    async with target_of(settings, clock) as target:
        server = await target.probe()
        plan = plan_of(settings, server, lines)
        if not await _until_stopped(_warm_up(plan, target, clock)):
            return INTERRUPTED
        folder = files.make_folder(settings.output, files.folder_name(settings, plan, started))
        measured = Measured()
        measured.interrupted = not await _until_stopped(_measure(plan, target, clock, measured, err))
    run = files.run_of(settings, plan, server, started, measured.points, interrupted=measured.interrupted)
    files.write(folder, run, measured.attempts)
    report.show(out, run)
    notes = plots.write(folder, run, measured.attempts) if settings.plots else []
    for note in [*notes, f"written to {folder}"]:
        err.print(note, soft_wrap=True)
    return measured.exit_code


async def _warm_up(plan: Plan, target: Target, clock: Stopwatch) -> None:
    """Raises `BenchError` when the server refuses all requests for what they are: no load would come of them."""
    if not plan.settings.warm_up:
        return
    first = plan.loads[0]
    concurrency = first.concurrency if isinstance(first, ClosedLoop) else first.max_in_flight
    sender = Sender(target, plan.settings.timeout, clock, Watched())
    attempts = await warm_up(plan.requests(None), plan.settings.warm_up, concurrency, sender)
    failures = [attempt.failure for attempt in attempts if attempt.failure is not None]
    refusals = [one for one in failures if one.status is not None and 400 <= one.status < 500 and one.status not in _FOR_NOW]
    if len(refusals) == len(attempts):
        raise BenchError(f"the server refuses these requests: {refusals[0].message}")


async def _measure(plan: Plan, target: Target, clock: Stopwatch, measured: Measured, console: Console) -> None:
    """Load after load. What has been measured when this is cancelled is kept."""
    for place, load in enumerate(plan.loads):
        watched = Watched()
        sender = Sender(target, plan.settings.timeout, clock, watched)
        requests = plan.requests(place)
        lags: list[float] = []
        watching = asyncio.create_task(watch_loop(lags))
        try:
            async with shown(console, name_of(load), plan.bounds, watched):
                clock.restart()
                if isinstance(load, OpenLoop):
                    await run_open(load, plan.due(load), requests, plan.bounds, sender)
                else:
                    await run_closed(load, requests, plan.bounds, sender)
        finally:
            watching.cancel()
            measured.points.append(point(load, watched.finished, lags))
            measured.attempts[name_of(load)] = watched.finished


async def _until_stopped(work: Coroutine[Any, Any, None]) -> bool:
    """Whether it came to its end. Ctrl-C and SIGTERM cancel it, which closes the connections of what runs."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return not task.cancelled()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
