"""Streams put together keep every item, end on every path, and let nothing run ahead without bound."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from gateway.merge import merge, ready

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Source:
    """Counts what was taken of it, and whether it was closed."""

    def __init__(self, count: int, *, fail_at: int | None = None, pause: float = 0.0) -> None:
        self.count, self.fail_at, self.pause = count, fail_at, pause
        self.taken = 0
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                if number == self.fail_at:
                    raise ValueError("source failed")
                await asyncio.sleep(self.pause)
                self.taken += 1
                yield number
        finally:
            self.closed = True


async def until_failure(batches: AsyncGenerator[list[int], None]) -> AsyncGenerator[list[int], None]:
    with pytest.raises(ValueError, match="source failed"):  # noqa: PT012
        async for batch in batches:
            yield batch


async def test_ready_keeps_every_item_in_order() -> None:
    source = Source(100)
    batches = []
    async for batch in ready(source.items(), 8):
        batches.append(batch)
        await asyncio.sleep(0.001)
    assert [item for batch in batches for item in batch] == list(range(100))
    assert max(map(len, batches)) > 1
    assert source.closed


async def test_ready_does_not_run_ahead_of_a_slow_reader() -> None:
    source = Source(1000)
    batches = ready(source.items(), 8)
    await anext(batches)
    await asyncio.sleep(0.05)
    assert source.taken <= 20
    await batches.aclose()
    assert source.closed


async def test_ready_gives_what_came_before_a_failure() -> None:
    batches = ready(Source(10, fail_at=4).items(), 8)
    assert [item async for batch in until_failure(batches) for item in batch] == [0, 1, 2, 3]


async def test_merge_takes_turns_and_closes_all() -> None:
    fast, slow = Source(5), Source(3, pause=0.005)
    assert sorted([item async for item in merge([fast.items(), slow.items()])]) == sorted([*range(5), *range(3)])
    assert fast.closed
    assert slow.closed


async def test_a_failing_source_ends_the_others() -> None:
    failing, other = Source(5, fail_at=1), Source(1000, pause=0.005)
    merged = merge([failing.items(), other.items()])
    assert await anext(merged) == 0
    with pytest.raises(ValueError, match="source failed"):
        await anext(merged)
    assert other.closed
    assert other.taken < 10
