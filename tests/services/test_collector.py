"""Full collections are made between big bodies, and they are made."""

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from service_kit import collector
from service_kit.collector import settle, tend
from service_kit.offload import BIG, offload

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Node:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(collector, "PATIENCE_SECONDS", 0.1)
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50, 2, 2)
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.fixture
def full() -> Iterator[list[float]]:
    """When full collections were made."""
    seen: list[float] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            seen.append(time.monotonic())

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def served(work: "asyncio.Future[None]") -> None:
    settle()
    tending = asyncio.create_task(tend())
    try:
        async with asyncio.timeout(20):
            await work
    finally:
        tending.cancel()
        await asyncio.wait({tending})


def made() -> "list[weakref.ref[Node]]":
    """Garbage, old enough to be left to full collections."""
    nodes = [Node() for _ in range(100)]
    found = [weakref.ref(node) for node in nodes]
    gc.collect(1)
    return found


async def reclaimed(garbage: "list[weakref.ref[Node]]") -> None:
    while any(node() is not None for node in garbage):
        kept = [[] for _ in range(2000)]  # type: ignore[var-annotated]  # a service at work: what it makes makes a collection due
        await asyncio.sleep(0.01)
        del kept


def busy() -> None:
    """More than Python by itself would let be made without a full collection: a quarter of what there is."""
    kept = [[number] for number in range(len(gc.get_objects()) + 100_000)]
    del kept


async def test_garbage_of_cycles_is_reclaimed_and_python_goes_on_as_before(full: list[float]) -> None:
    async def all_of_it() -> None:
        await asyncio.sleep(0)
        full.clear()
        await reclaimed(made())
        assert full

    before = gc.get_threshold()
    await served(asyncio.ensure_future(all_of_it()))
    assert gc.get_threshold() == before


async def test_no_full_collection_is_made_beside_a_big_body(full: list[float]) -> None:
    async def all_of_it() -> None:
        await asyncio.sleep(0)
        full.clear()
        seen = await offload(lambda: (busy(), list(full))[1], size=BIG)
        assert not seen
        await reclaimed(made())
        assert full

    await served(asyncio.ensure_future(all_of_it()))


async def test_where_there_is_always_a_big_body_at_work_new_ones_wait_for_a_collection() -> None:
    begun = 0
    stop = threading.Event()

    def work() -> None:
        """Ends when the next one has begun, or does not."""
        nonlocal begun
        begun += 1
        own, until = begun, time.monotonic() + 1
        while begun == own and time.monotonic() < until and not stop.is_set():
            time.sleep(0.002)

    async def endless() -> None:
        while not stop.is_set():
            await offload(work, size=BIG)

    async def all_of_it() -> None:
        both = [asyncio.create_task(endless()) for _ in range(2)]
        try:
            await asyncio.sleep(0.1)
            await reclaimed(made())
        finally:
            stop.set()
            await asyncio.gather(*both)

    await served(asyncio.ensure_future(all_of_it()))


async def test_others_do_not_wait_behind_big_bodies() -> None:
    stop = threading.Event()
    big = [asyncio.create_task(offload(stop.wait, size=BIG)) for _ in range(20)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        assert await offload(lambda: 1) == 1
    stop.set()
    await asyncio.gather(*big)
