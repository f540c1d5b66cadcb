"""What one run of a chat template may use: time, and the size of what it makes.

A template is a program, and what it makes of a request can grow without any bound. So whatever in it goes round or grows asks here,
in the thread in which it runs, whether it may: `tick` and `fits` raise when it may not.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TypeVar

from model_profile.template import TemplateExceeded

T = TypeVar("T")
MIB = 1024 * 1024
_SIZED = (str, bytes, list, tuple)


@dataclass(frozen=True)
class TemplateLimits:
    """Of one run: its `seconds`, and the `characters` of what it writes or makes on the way. `mib` bounds the memory of
    processes that run nothing else."""

    seconds: float = 10.0
    characters: int = 16 * MIB
    mib: int = 512


STANDARD = TemplateLimits()


def too_slow(limits: TemplateLimits) -> str:
    return f"the chat template took longer than {limits.seconds:g} seconds"


def too_long(limits: TemplateLimits) -> str:
    return f"the chat template wrote more than {limits.characters} characters"


class _Running(threading.local):
    """The run of this thread. Outside of runs, where constants of a template are folded, sizes are bounded and time is not."""

    limits = STANDARD
    characters = limits.characters
    until = inf


_running = _Running()


class within:
    """A run begins here and ends with the block. Within another it has that one's time."""

    # A class, for speed: as a generator it would take as long as a message.
    __slots__ = ("_before", "_limits")

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        running, limits = _running, self._limits
        self._before = (running.limits, running.characters, running.until)
        running.limits, running.characters = limits, limits.characters
        running.until = min(running.until, monotonic() + limits.seconds)

    def __exit__(self, *_: object) -> None:
        _running.limits, _running.characters, _running.until = self._before


def tick() -> None:
    """Raises `TemplateExceeded` when the time is over."""
    if monotonic() > _running.until:
        raise TemplateExceeded(too_slow(_running.limits))


def fits(size: int) -> None:
    """Raises `TemplateExceeded` for a text, or a list, of so many characters or items."""
    if size > _running.characters:
        raise TemplateExceeded(too_long(_running.limits))


def checked(value: T) -> T:
    """`value`, if it fits. Raises `TemplateExceeded`."""
    if isinstance(value, _SIZED) and len(value) > _running.characters:
        fits(len(value))
    return value


def concat(parts: Iterable[str]) -> str:
    """The parts in one, as long as they fit. A template's whole output comes as it runs, and may never end."""
    if type(parts) is not Buffer:
        most = _running.characters
        size, texts = 0, []
        for part in parts:
            size += len(part)
            texts.append(part)
            if size > most or len(texts) > most:
                fits(most + 1)
        parts = texts
    return "".join(parts)


class Buffer(list[str]):
    """What a macro or a block writes, as long as it fits."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def append(self, part: str) -> None:
        self._size += len(part)
        super().append(part)
        if self._size > _running.characters or len(self) > _running.characters:
            fits(_running.characters + 1)

    def extend(self, parts: Iterable[str]) -> None:
        for part in parts:
            self.append(part)


def room() -> int:
    """The largest size that fits."""
    return _running.characters
