"""Keeps CPU-bound work off the event loop (law L10).

A hop to a thread and back costs more than a tiny job. So work on a small body (`is_small`) may run in place where the caller says
that its cost is bounded by the body's size. Everything else goes to a small pool, whose size bounds how much runs at once: work on
big bodies to one of its own, so that no other waits behind it.
"""

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from service_kit.collector import SWITCH_SECONDS, big_work

T = TypeVar("T")
B = TypeVar("B", bound=str | bytes)

INLINE_BYTES, INLINE_ITEMS = 4096, 128
"""Of a small body. Work is done per item, and an item may be two bytes: a token id that stands for a hundred characters."""
JSON_BYTES = 32 * 1024
"""Of JSON that is read or written in place: well under a millisecond."""
BIG = 256 * 1024
"""Bytes. A smaller body is read within a few milliseconds in any case."""
THREADS = max(2, os.cpu_count() or 1)
_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tandem-cpu")
_big_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tandem-big")
_turn = threading.Lock()


async def offload(work: Callable[[], T], *, size: int = 0) -> T:
    """Runs `work` in a pool, within the caller's context (log lines keep their request id). `size`: bytes of what it works on."""
    run = contextvars.copy_context().run
    pool, own = (_pool, work) if size < BIG else (_big_pool, lambda: _big(work))
    return await asyncio.get_running_loop().run_in_executor(pool, run, own)


def _big(work: Callable[[], T]) -> T:
    with big_work.one():
        return work()


def is_small(body: str | bytes) -> bool:
    """Whether work that is linear in this JSON's size is a matter of a few milliseconds at most."""
    if len(body) > INLINE_BYTES:
        return False
    return (body.count(",") if isinstance(body, str) else body.count(b",")) < INLINE_ITEMS


async def by_size(body: B, work: Callable[[B], T]) -> T:
    """Runs `work(body)` in place when the body is small, else in a pool. For work that is linear in the body's size."""
    if is_small(body):
        return work(body)
    return await offload(lambda: work(body), size=len(body))


async def by_length(size: int, work: Callable[[], T]) -> T:
    """Runs `work` in place or in a pool. For work that is no more than reading or writing JSON of `size` bytes."""
    return work() if size <= JSON_BYTES else await offload(work, size=size)


@contextmanager
def long_step() -> Iterator[None]:
    """Around one call of a library's, in which no other thread can run. One thread after the other: two in turns would keep the
    event loop waiting twice as long. The event loop comes first."""
    with _turn:
        time.sleep(SWITCH_SECONDS)
        yield
