"""Load, in a closed loop or an open one."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice

from tandem.bench.errors import Failure, RequestFailed
from tandem.bench.requests import Request
from tandem.bench.schedule import Arrivals
from tandem.bench.seen import Answer, Arrival, Attempt, Slot, Stage
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.targets import Target


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` requests run at once; the next begins when one has ended."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests begin when they are due, `rate` a second, whatever has become of those before. One that finds `max_in_flight`
    running waits for a place, in the order they came: it is sent late, and that is counted."""

    rate: float
    arrivals: Arrivals
    max_in_flight: int


Load = ClosedLoop | OpenLoop


@dataclass
class Watched:
    """What is going on, for whoever shows it. `finished` has every request that was sent, as it ended."""

    running: int = 0
    tokens: int = 0
    failed: int = 0
    finished: list[Attempt] = field(default_factory=list)


@dataclass
class Sender:
    """Sends single requests and notes what becomes of them. A request that fails ends nothing but itself."""

    target: Target
    timeout: float
    clock: Stopwatch
    watched: Watched

    async def send(self, request: Request, slot: Slot) -> None:
        """When this is cancelled the request is noted as neither answered nor failed."""
        arrivals: list[Arrival] = []
        stages: list[Stage] = []
        answer: Answer | None = None
        failure: Failure | None = None
        self.watched.running += 1
        running = self.watched.running
        sent = self.clock()
        try:
            async with asyncio.timeout(self.timeout), aclosing(self.target.ask(request)) as seen:
                async for one in seen:
                    if isinstance(one, Arrival):
                        arrivals.append(one)
                        self.watched.tokens += one.tokens
                    elif isinstance(one, Stage):
                        stages.append(one)
                    else:
                        answer = one
        except TimeoutError:
            failure = Failure("timeout", f"not over after {self.timeout:g} s")
        except RequestFailed as error:
            failure = error.failure
        finally:
            ended = answer.ended if answer is not None else self.clock()
            self.watched.running -= 1
            self.watched.failed += failure is not None
            self.watched.finished.append(
                Attempt(
                    request=request,
                    slot=slot,
                    sent=sent,
                    ended=ended,
                    arrivals=tuple(arrivals),
                    stages=tuple(stages),
                    answer=None if failure else answer,
                    failure=failure,
                    in_flight=running,
                )
            )


@dataclass(frozen=True)
class Bounds:
    """How many requests are sent at most, and in which time from the start they are begun."""

    requests: int | None = None
    seconds: float | None = None


async def run_closed(load: ClosedLoop, requests: Iterable[Request], bounds: Bounds, sender: Sender) -> None:
    """Returns when every request that was begun has ended."""
    rest = islice(requests, bounds.requests)

    async def one_after_another() -> None:
        for request in rest:
            await sender.send(request, Slot())
            if bounds.seconds is not None and sender.clock() >= bounds.seconds:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(load.concurrency if bounds.requests is None else min(load.concurrency, bounds.requests)):
            group.create_task(one_after_another())


async def run_open(load: OpenLoop, due: Iterator[float], requests: Iterable[Request], bounds: Bounds, sender: Sender) -> None:
    """Returns when every request that was due has ended."""
    places = asyncio.Semaphore(load.max_in_flight)

    async def in_its_place(request: Request, at: float) -> None:
        arrived = sender.clock()
        # Only a wait for a place counts as one: the semaphore's own few microseconds do not.
        waits = places.locked()
        async with places:
            await sender.send(request, Slot(at, sender.clock() - arrived if waits else 0.0))

    async with asyncio.TaskGroup() as group:
        for at, request in zip(due, islice(requests, bounds.requests), strict=False):
            if bounds.seconds is not None and at >= bounds.seconds:
                break
            # Even without a pause the others get their turn, or a late schedule would starve what it is late with.
            await asyncio.sleep(max(0.0, at - sender.clock()))
            group.create_task(in_its_place(request, at))


async def warm_up(requests: Iterable[Request], count: int, concurrency: int, sender: Sender) -> list[Attempt]:
    """A closed loop whose requests do not count."""
    await run_closed(ClosedLoop(concurrency), requests, Bounds(requests=count), sender)
    return sender.watched.finished
