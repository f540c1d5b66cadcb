"""The live bar of one load: what has ended, what runs, and how fast."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tandem.bench.load import Bounds, Watched
from tandem.bench.stopwatch import Stopwatch

_PAUSE_SECONDS = 0.25
"""Drawing takes a millisecond or two, in which no arrival is noted."""


@asynccontextmanager
async def shown(console: Console, name: str, bounds: Bounds, watched: Watched) -> AsyncIterator[None]:
    """Nothing is shown where nobody watches (a pipe, a file)."""
    if not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    clock = Stopwatch()
    # Drawn on the load's own thread: one beside it would take the interpreter just when a token comes.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        bar = progress.add_task(name, total=bounds.requests if bounds.requests is not None else bounds.seconds, state="")

        async def draw() -> None:
            while True:
                await asyncio.sleep(_PAUSE_SECONDS)
                done = len(watched.finished) if bounds.requests is not None else clock()
                progress.update(bar, completed=done, state=state(watched, clock()))
                progress.refresh()

        drawing = asyncio.create_task(draw())
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing


def state(watched: Watched, seconds: float) -> str:
    """The bar's words: rates since the load began."""
    words = [
        f"{len(watched.finished)} done",
        f"{watched.running} running",
        f"{len(watched.finished) / seconds:.1f} requests/s",
        f"{watched.tokens / seconds:.0f} tokens/s",
    ]
    return ", ".join(words + ([f"{watched.failed} failed"] if watched.failed else []))
