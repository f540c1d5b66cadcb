"""Keeps CPU-bound work off the event loop (law L10).

A hop to a thread and back costs more than a tiny job. So work on a body of at most `INLINE_BYTES` may run in place where the caller
says that its cost is bounded by the body's size; everything else goes to a small pool, whose size bounds how much runs at once.
"""

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
B = TypeVar("B", bound=str | bytes)

INLINE_BYTES = 4096
_pool = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1), thread_name_prefix="tandem-cpu")


async def offload(work: Callable[[], T]) -> T:
    """Runs `work` in the pool, within the caller's context (log lines keep their request id)."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_pool, run, work)


async def by_size(body: B, work: Callable[[B], T]) -> T:
    """Runs `work(body)` in place when the body is small, else in the pool. For work that is linear in the body's size."""
    if len(body) <= INLINE_BYTES:
        return work(body)
    return await offload(lambda: work(body))
