"""Stop strings over text that arrives in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scan:
    """`text` may be sent; `held` may still become a stop string; `matched` is the one that has, None so far."""

    text: str
    held: str
    matched: str | None = None


def scan(held: str, text: str, stops: Sequence[str], *, include: bool) -> Scan:
    """Looks for stop strings in `held + text`.

    As if the text came one character at a time: the stop string that is complete first wins, of those that end together the
    longest. So the cut does not depend on how the text was sliced. `include` sends the stop string too.
    """
    text = held + text
    found = [(at + len(stop), at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if found:
        end, at, stop = min(found)
        return Scan(text[: end if include else at], "", stop)
    keep = max((_overlap(text, stop) for stop in stops), default=0)
    return Scan(text[: len(text) - keep], text[len(text) - keep :])


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-n:])), 0)
