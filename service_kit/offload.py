"""Keeps CPU-bound work off the event loop (law L10).

A hop to a thread and back costs more than a tiny job. So work on a small body (`is_small`) may run in place where the caller says
that its cost is bounded by the body's size; everything else goes to a small pool, whose size bounds how much runs at once.
"""

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
B = TypeVar("B", bound=str | bytes)

INLINE_BYTES, INLINE_ITEMS = 4096, 128
"""Of a small body. Work is done per item, and an item may be two bytes: a token id that stands for a hundred characters."""
THREADS = max(2, os.cpu_count() or 1)
_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="tandem-cpu")


async def offload(work: Callable[[], T]) -> T:
    """Runs `work` in the pool, within the caller's context (log lines keep their request id)."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_pool, run, work)


def is_small(body: str | bytes) -> bool:
    """Whether work that is linear in this JSON's size is a matter of a few milliseconds at most."""
    if len(body) > INLINE_BYTES:
        return False
    return (body.count(",") if isinstance(body, str) else body.count(b",")) < INLINE_ITEMS


async def by_size(body: B, work: Callable[[B], T]) -> T:
    """Runs `work(body)` in place when the body is small, else in the pool. For work that is linear in the body's size."""
    if is_small(body):
        return work(body)
    return await offload(lambda: work(body))
