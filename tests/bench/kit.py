"""Attempts made by hand, and whole runs of the bench against live servers."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.generate import Timings
from tandem.bench.errors import ErrorKind, Failure
from tandem.bench.files import read_rows, read_run
from tandem.bench.requests import Request
from tandem.bench.rows import Row
from tandem.bench.run import bench
from tandem.bench.seen import Answer, Arrival, Attempt, Seen, Slot, Stage
from tandem.bench.settings import BenchSettings
from tandem.bench.summary import Point, Run
from tandem.bench.targets import Server, Target


def answered(
    *arrivals: tuple[float, int],
    sent: float = 0.0,
    ended: float | None = None,
    index: int = 0,
    slot: Slot | None = None,
    stages: Sequence[Stage] = (),
    **told: Any,
) -> Attempt:
    """A whole answer whose output came as (time, tokens)."""
    end = ended if ended is not None else arrivals[-1][0]
    tokens = sum(count for _, count in arrivals)
    answer = Answer(ended=end, **{"output_tokens": tokens, "finish_reason": "length", **told})
    came = tuple(Arrival(at, count) for at, count in arrivals)
    return Attempt(Request(index, "k", {}), slot or Slot(), sent, end, came, tuple(stages), answer)


def failed(kind: ErrorKind, *arrivals: tuple[float, int], message: str = "m", index: int = 0) -> Attempt:
    came = tuple(Arrival(at, count) for at, count in arrivals)
    return Attempt(Request(index, "k", {}), Slot(), 0.0, 9.0, came, failure=Failure(kind, message))


def timings(queue: float, first: float | None, execution: float) -> Timings:
    return Timings(queue_ms=queue, ttft_ms=first, execution_ms=execution, total_ms=queue + execution, tokens_per_s=1.0)


@dataclass
class Ran:
    """What a run left behind."""

    code: int
    folder: Path
    run: Run
    rows: list[Row]

    @property
    def point(self) -> Point:
        (point,) = self.run.points
        return point


def ran(folder: Path, **settings: Any) -> Ran:
    """A run of the bench in this process, without plots unless wanted."""
    before = set(folder.glob("*"))
    code = bench(BenchSettings(**{"output": folder, "plots": False, **settings}))
    (made,) = set(folder.glob("*")) - before
    return Ran(code, made, read_run(made), read_rows(made))


class Played(Target):
    """A target whose requests take no server: `ask` is given by the test."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    async def probe(self) -> Server:
        return Server()

    async def take(self, request: Request) -> AsyncGenerator[Seen, None]:
        raise NotImplementedError
        yield

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            async for seen in self.take(request):
                yield seen
        finally:
            self.running -= 1
