"""Several streams as one, each item as it comes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Holds at most one item of each source, so a slow reader slows the sources. The first failure ends all of them.

    Every source is closed on every path.
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
