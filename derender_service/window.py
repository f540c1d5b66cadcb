"""What a decoder carries between two chunks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """`context`: tokens whose text was sent. `pending`: tokens whose text waits for more."""

    context: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


START = Window()
