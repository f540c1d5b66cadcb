"""Closed and open loops, over a target that takes no server."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from itertools import count
from typing import Any

import pytest

from tandem.bench.errors import broken
from tandem.bench.load import Bounds, ClosedLoop, OpenLoop, Sender, Watched, run_closed, run_open
from tandem.bench.requests import Request
from tandem.bench.saturation import watch_loop
from tandem.bench.schedule import due_times
from tandem.bench.seen import Answer, Arrival, Attempt, Seen
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.summary import point
from tests.bench.kit import Played

pytestmark = pytest.mark.anyio
REQUESTS = [Request(index, "k", {}) for index in range(100)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Slow(Played):
    """Answers one token after so many seconds; request 3 fails, request 5 never ends."""

    def __init__(self, seconds: float, clock: Stopwatch, *, faulty: bool = False) -> None:
        super().__init__()
        self._seconds, self._clock, self._faulty = seconds, clock, faulty

    async def take(self, request: Request) -> AsyncGenerator[Seen, None]:
        if self._faulty and request.index == 3:
            raise broken("no")
        yield Arrival(self._clock(), 1)
        if self._faulty and request.index == 5:
            await asyncio.Event().wait()
        await asyncio.sleep(self._seconds)
        yield Arrival(self._clock(), 1)
        yield Answer(self._clock(), output_tokens=2)


def sender(seconds: float, *, timeout: float = 5.0, faulty: bool = False) -> tuple[Sender, Slow]:
    clock = Stopwatch()
    target = Slow(seconds, clock, faulty=faulty)
    return Sender(target, timeout, clock, Watched()), target


def indices(some: list[Attempt]) -> list[int]:
    return sorted(attempt.request.index for attempt in some)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_a_closed_loop_keeps_so_many_running(concurrency: int) -> None:
    one, target = sender(0.01)
    await run_closed(ClosedLoop(concurrency), REQUESTS, Bounds(requests=20), one)
    assert target.most == min(concurrency, 20)
    assert indices(one.watched.finished) == list(range(20))
    assert max(attempt.in_flight for attempt in one.watched.finished) == target.most
    assert (one.watched.running, one.watched.tokens) == (0, 40)


async def test_a_duration_bounds_the_beginnings_not_the_ends() -> None:
    one, _ = sender(0.05)
    await run_closed(ClosedLoop(2), (Request(index, "k", {}) for index in count()), Bounds(seconds=0.12), one)
    finished = one.watched.finished
    assert all(attempt.answer is not None for attempt in finished)
    assert max(attempt.sent for attempt in finished) < 0.12 < max(attempt.ended for attempt in finished)


async def test_a_failing_request_ends_only_itself() -> None:
    one, target = sender(0.01, timeout=0.1, faulty=True)
    await run_closed(ClosedLoop(2), REQUESTS, Bounds(requests=10), one)
    kinds = {attempt.request.index: attempt.failure.kind for attempt in one.watched.finished if attempt.failure}
    assert kinds == {3: "protocol", 5: "timeout"}
    assert indices(one.watched.finished) == list(range(10))
    hanging = next(attempt for attempt in one.watched.finished if attempt.request.index == 5)
    assert (len(hanging.arrivals), hanging.answer) == (1, None)
    assert target.running == 0


async def test_an_open_loop_keeps_its_schedule_however_slow_the_server_is() -> None:
    one, target = sender(0.3)
    await run_open(OpenLoop(100, "deterministic", 1000), due_times(100, "deterministic", 0), REQUESTS, Bounds(requests=20), one)
    finished = one.watched.finished
    assert target.most == 20
    assert [attempt.slot.due for attempt in finished] == [place / 100 for place in range(20)]
    assert all(attempt.slot.due is not None and attempt.sent >= attempt.slot.due for attempt in finished)
    assert all(attempt.slot.held == 0 for attempt in finished)
    assert max(attempt.sent for attempt in finished) < 0.3


async def test_a_request_without_a_place_waits_in_its_turn_and_that_is_told() -> None:
    one, target = sender(0.05)
    await run_open(OpenLoop(1000, "deterministic", 2), due_times(1000, "deterministic", 0), REQUESTS, Bounds(requests=8), one)
    finished = sorted(one.watched.finished, key=lambda attempt: attempt.request.index)
    assert target.most == 2
    assert [attempt.slot.held > 0 for attempt in finished] == [False] * 2 + [True] * 6
    assert [attempt.sent for attempt in finished] == sorted(attempt.sent for attempt in finished)
    for attempt in finished[2:]:
        assert attempt.slot.due is not None
        assert attempt.slot.held == pytest.approx(attempt.sent - attempt.slot.due, abs=0.02)
    dispatch = point(OpenLoop(1000, "deterministic", 2), finished).dispatch
    assert dispatch is not None
    assert dispatch.held == 6


async def test_a_client_with_other_things_to_do_is_saturated() -> None:
    one, _ = sender(0.0)

    async def busy() -> None:
        while True:
            time.sleep(0.06)  # noqa: ASYNC251  (that is what is tried)
            await asyncio.sleep(0)

    lags: list[float] = []
    others = [asyncio.create_task(busy()), asyncio.create_task(watch_loop(lags))]
    await run_open(OpenLoop(100, "deterministic", 1000), due_times(100, "deterministic", 0), REQUESTS, Bounds(requests=30), one)
    for task in others:
        task.cancel()
    judged = [point(OpenLoop(100, "deterministic", 1000), one.watched.finished, some).saturation for some in (lags, [])]
    assert all(saturation.client_saturated for saturation in judged)
    assert "event loop" in judged[0].why[0]
    assert "requests were sent" in judged[1].why[0]


@pytest.mark.parametrize("loop", ["closed", "open"])
async def test_what_runs_when_the_load_is_stopped_is_neither_answered_nor_failed(loop: str) -> None:
    one, target = sender(10)
    load: Coroutine[Any, Any, None] = (
        run_closed(ClosedLoop(3), REQUESTS, Bounds(requests=20), one)
        if loop == "closed"
        else run_open(OpenLoop(1000, "deterministic", 3), due_times(1000, "deterministic", 0), REQUESTS, Bounds(requests=20), one)
    )
    task = asyncio.create_task(load)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert target.running == 0
    made = point(ClosedLoop(3), one.watched.finished)
    assert made.requests.model_dump() == {"sent": 3, "completed": 0, "failed": 0, "unfinished": 3}
