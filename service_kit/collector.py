"""Python's cycle collector and its turns of threads, kept from holding the event loop up.

A full collection looks at every list and object that there is, and no other thread can run meanwhile: beside a big body's that is a
second, several times for each. So none begins by itself in a service. They are made here, between big bodies.
"""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_SECONDS = 0.001
"""How long a thread may run on while another waits; Python's own is five times that. The event loop waits several times for one
answer, and behind each thread of the pool."""

_NEVER = 2**31 - 1
LOOK_SECONDS, _WAIT_SECONDS = 5.0, 0.05
PATIENCE_SECONDS = 30.0
"""Where there is always a big body at work, new ones wait after this long for the last one to end."""


class BigWork:
    """The big bodies that threads are at work on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._held = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around the work on one, in a thread that may have to wait."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    @property
    def none(self) -> bool:
        return not self._running

    def hold(self, held: bool) -> None:
        """Whether no more may begin."""
        with self._changed:
            self._held = held
            self._changed.notify_all()


big_work = BigWork()


def settle() -> None:
    """For when a service has loaded all that it keeps: the collector need not look at that again. Threads take shorter turns from
    now on (law L10)."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


async def tend() -> None:
    """Makes the full collections, as long as a service runs."""
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    try:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if gc.get_count()[2] > full:
                await _collect()
    finally:
        gc.set_threshold(young, middle, full)


async def _collect() -> None:
    since = time.monotonic()
    try:
        while not big_work.none:
            big_work.hold(time.monotonic() - since > PATIENCE_SECONDS)
            await asyncio.sleep(_WAIT_SECONDS)
        gc.collect()
    finally:
        big_work.hold(False)
