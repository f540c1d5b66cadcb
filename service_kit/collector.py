"""Python's cycle collector and its turns of threads, kept from holding the event loop up.

Each list and object that is read makes it look at those before again and again, while no other thread can run: that is most of the
time that a body of many small parts takes. What is read has no cycles, so nothing is lost by waiting.
"""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

BIG = 256 * 1024
"""Bytes. A smaller body is read within a few milliseconds in any case."""

SWITCH_SECONDS = 0.001
"""How long a thread may run on while another waits; Python's own is five times that. The event loop waits several times for one
answer, and behind each thread of the pool."""

_turn = threading.Lock()


def settle() -> None:
    """For when a service has loaded all that it keeps. The collector need not look at that again: it would, every few big requests,
    for some 60 ms in which no other thread runs. Threads take shorter turns from now on (law L10)."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses the collector. One thread after the other: two that read big bodies in turns would keep the event loop waiting twice
    as long. The event loop comes first."""
    with _turn:
        time.sleep(SWITCH_SECONDS)
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
