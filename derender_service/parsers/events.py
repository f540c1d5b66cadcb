"""What a parser tells: text of the two channels, and calls, in the order in which the model wrote them."""

from typing import NamedTuple


class Reasoning(NamedTuple):
    text: str


class Content(NamedTuple):
    text: str


class CallStart(NamedTuple):
    """A call whose function name is known. `id` where the model itself writes one that its template wants back."""

    name: str
    id: str | None = None


class Arguments(NamedTuple):
    """Further text of the arguments of the call begun last."""

    text: str


Event = Reasoning | Content | CallStart | Arguments
