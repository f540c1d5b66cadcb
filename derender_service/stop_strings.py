"""Stop strings over text that arrives in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

from derender_service.parsers.events import Content, Event, Reasoning


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


@dataclass(frozen=True)
class Held:
    """Text that may still become a stop string; `reasoning` says of which channel."""

    text: str = ""
    reasoning: bool = False


@dataclass(frozen=True)
class Screened:
    events: list[Event]
    held: Held
    matched: str | None = None


def screen(held: Held, events: Sequence[Event], stops: Sequence[str], *, include: bool, last: bool) -> Screened:
    """Looks for stop strings in what the user reads: in content and in reasoning, each by itself. Markup and the arguments of calls
    are neither. What follows a stop string is dropped; at the `last` nothing is held."""
    shown: list[Event] = []
    for event in events:
        if not isinstance(event, Content | Reasoning):
            held = _release(held, shown)
            shown.append(event)
            continue
        kind = type(event)
        if held.text and held.reasoning != (kind is Reasoning):
            held = _release(held, shown)
        found = scan(held.text, event.text, stops, include=include)
        if found.text:
            shown.append(kind(found.text))
        if found.matched is not None:
            return Screened(shown, Held(), found.matched)
        held = Held(found.held, bool(found.held) and kind is Reasoning)
    return Screened(shown, _release(held, shown) if last else held)


def _release(held: Held, shown: list[Event]) -> Held:
    if held.text:
        shown.append(Reasoning(held.text) if held.reasoning else Content(held.text))
    return Held()
