"""The live bar of one load: what has ended, what runs, and how fast."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tandem.bench.load import Bounds, Watched

_PAUSE_SECONDS = 0.1
"""Drawing takes time that the load needs: the bar is looked at no more often than this."""


@contextmanager
def shown(console: Console, name: str, bounds: Bounds, watched: Watched) -> Iterator[None]:
    """Nothing is shown where nobody watches (a pipe, a file)."""
    if not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    begun = time.monotonic()
    drawn = begun
    # Drawn on the load's own thread: one beside it would take the interpreter just when a token comes.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        total = bounds.requests if bounds.requests is not None else bounds.seconds
        bar = progress.add_task(name, total=total, state="")

        def draw() -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn < _PAUSE_SECONDS:
                return
            drawn = now
            done = len(watched.finished) if bounds.requests is not None else now - begun
            progress.update(bar, completed=done, state=state(watched, now - begun))
            progress.refresh()

        watched.on_change = draw
        try:
            yield
        finally:
            watched.on_change = lambda: None


def state(watched: Watched, seconds: float) -> str:
    """The bar's words: rates since the load began."""
    failed = sum(attempt.failure is not None for attempt in watched.finished)
    words = [
        f"{len(watched.finished)} done",
        f"{watched.running} running",
        f"{len(watched.finished) / seconds:.1f} requests/s",
        f"{watched.tokens / seconds:.0f} tokens/s",
    ]
    return ", ".join(words + ([f"{failed} failed"] if failed else []))
