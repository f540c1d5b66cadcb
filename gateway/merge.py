"""Streams put together: several as one, and what is ready of one as a batch."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Items of all sources, each as it comes. The first failure ends all of them; every source is closed on every path.

    Holds at most one item of each source, so a slow reader slows the sources.
    """
    if len(sources) == 1:
        async with aclosing(sources[0]) as only:
            async for item in only:
                yield item
        return
    steps = {asyncio.ensure_future(anext(source)): source for source in sources}
    try:
        while steps:
            done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            for step in done:
                source = steps.pop(step)
                try:
                    item = step.result()
                except StopAsyncIteration:
                    continue
                yield item
                steps[asyncio.ensure_future(anext(source))] = source
    finally:
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)
        for source in sources:
            await source.aclose()


async def ready(source: AsyncGenerator[T, None], limit: int) -> AsyncGenerator[list[T], None]:
    """What has come since the last look, at least one item: while the reader is busy the source goes on, up to `limit` items ahead.

    A failure of the source is raised after what came before it. The source is closed on every path.
    """
    queue: asyncio.Queue[T] = asyncio.Queue(limit)

    async def pump() -> None:
        async with aclosing(source):
            async for item in source:
                await queue.put(item)
                # What is buffered already comes without a wait; the reader must not have to wait for all of it.
                await asyncio.sleep(0)

    pumping = asyncio.ensure_future(pump())
    first = asyncio.ensure_future(queue.get())
    try:
        while True:
            await asyncio.wait({first, pumping}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                pumping.result()
                return
            yield [first.result(), *(queue.get_nowait() for _ in range(queue.qsize()))]
            first = asyncio.ensure_future(queue.get())
    finally:
        for task in (pumping, first):
            task.cancel()
        await asyncio.wait({pumping, first})
