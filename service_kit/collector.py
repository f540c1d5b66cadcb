"""Python's cycle collector, kept out of the reading of big bodies.

Each list and object that is read makes it look at those before again and again, while no other thread can run: that is most of the
time that a body of many small parts takes. What is read has no cycles, so nothing is lost by waiting.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BIG = 256 * 1024
"""Bytes. A smaller body is read within a few milliseconds in any case."""

_lock = threading.Lock()
_pauses = 0


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses the collector. Several threads may do so at once."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(by: int) -> None:
    global _pauses
    with _lock:
        _pauses += by
        if _pauses:
            gc.disable()
        else:
            gc.enable()
