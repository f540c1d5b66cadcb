"""The same for scripts: `with` and `for` in place of `async with` and `async for`."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from tandem.events import StreamEvent
from tandem.streamer import Streamer, stream
from tandem.targets import Target

T = TypeVar("T")


class SyncStreamer:
    """A `Streamer` on an event loop of its own, which runs while the caller waits for the next segment. `streamer` is that one: all
    its attributes can be read here."""

    def __init__(self, streamer: Streamer) -> None:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("an event loop is running here already; take tandem.stream, with `async with` and `async for`")
        self.streamer = streamer
        self._entered = False
        self._runner: asyncio.Runner | None = asyncio.Runner()
        self._runner.run(streamer.__aenter__())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.streamer, name)

    def __iter__(self) -> Iterator[str]:
        return self._driven(self.streamer.__aiter__())

    def events(self) -> Iterator[StreamEvent]:
        return self._driven(self.streamer.events())

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._runner is not None:
            self._runner.run(self.streamer.__aexit__(kind, error, trace))
        self.close()

    def close(self) -> None:
        """Ends the generation if it still runs. Idempotent."""
        if self._runner is not None:
            self._runner.run(self.streamer.aclose())
            self._runner.close()
            self._runner = None

    def _driven(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T | None:
            return await anext(iterator, None)

        try:
            while self._runner is not None and (found := self._runner.run(following())) is not None:
                yield found
        finally:
            if not self._entered:
                self.close()


def stream_sync(target: str | Target, request: Mapping[str, Any], *given: Any, **named: Any) -> SyncStreamer:
    """`stream` for code without an event loop, with the same arguments. Where one runs already (a notebook) `stream` serves."""
    return SyncStreamer(stream(target, request, *given, **named))
