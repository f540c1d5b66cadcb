"""Python's cycle collector and its turns of threads, kept from holding the event loop up.

Each list and object that is read makes it look at those before again and again, while no other thread can run: that is most of the
time that a body of many small parts takes. What is read has no cycles, so nothing is lost by waiting.
"""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BIG = 256 * 1024
"""Bytes. A smaller body is read within a few milliseconds in any case."""

SWITCH_SECONDS = 0.001
"""How long a thread may run on while another waits; Python's own is five times that. The event loop waits several times for one
answer, and behind each thread of the pool."""

_lock = threading.Lock()
_pauses = 0


def settle() -> None:
    """For when a service has loaded all that it keeps. The collector need not look at that again: it would, every few big requests,
    for some 60 ms in which no other thread runs. Threads take shorter turns from now on (law L10)."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


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
