"""Tool calls as they grow: events numbered, and ids that any replica would give them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from derender_service.parsers.events import Arguments, CallStart, Event
from derender_service.parsers.formats import Ids

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass
class CallPart:
    """What a chunk adds to one call. `name` is there with the first part; `own_id` where the model wrote an id."""

    index: int
    name: str | None = None
    own_id: str | None = None
    arguments: str = ""


def parts(events: Iterable[Event], count: int) -> tuple[list[CallPart], int]:
    """One part a call, in order, and how many calls have begun now. `count`: how many had."""
    found: list[CallPart] = []
    for event in events:
        if isinstance(event, CallStart):
            found.append(CallPart(count, event.name, event.id))
            count += 1
        elif isinstance(event, Arguments):
            if not found or found[-1].index != count - 1:
                found.append(CallPart(max(0, count - 1)))
            found[-1].arguments += event.text
    return found, count


def call_id(ids: Ids, request_id: str, choice: int, part: CallPart) -> str:
    """Derived, never drawn: a retry, or another replica, gives the same one."""
    if ids == "own" and part.own_id:
        return part.own_id
    digest = hashlib.sha256(f"{request_id}\n{choice}\n{part.index}".encode()).digest()
    if ids == "nine":
        return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:9])
    return f"call_{digest.hex()[:24]}"
