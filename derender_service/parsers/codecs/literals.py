"""JSON built piece by piece from literals of another notation: brackets, separators, and words."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from derender_service.parsers.codecs.json_string import escape
from derender_service.parsers.codecs.parameter_types import dumped
from derender_service.parsers.codecs.saved import Saved

_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
MAX_DEPTH = 200
"""Brackets that may be open at once."""
MAX_WORD = 400
"""Characters of a constant or a number."""


@dataclass
class JsonBuilder(Saved):
    """Where a JSON text being written stands: the open brackets, outermost first, in capitals once they hold something
    (`o` an object, `a` an array). `keyed`: a key has been written whose value has not."""

    stack: Annotated[str, Field(pattern="^[oOaA]*$")] = ""
    keyed: bool = False

    @property
    def at_key(self) -> bool:
        """Whether the next thing in the innermost bracket is a key."""
        return self.stack[-1:] in ("o", "O") and not self.keyed

    def lead(self) -> str:
        """What stands before the next key or value."""
        if self.keyed:
            self.keyed = False
            return ""
        inner = self.stack[-1:]
        self.stack = self.stack[:-1] + inner.upper()
        return ", " if inner.isupper() else ""

    def open(self, bracket: str) -> str:
        lead = self.lead()
        self.stack += "o" if bracket == "{" else "a"
        return lead + ("{" if bracket == "{" else "[")

    def close(self) -> str:
        inner, self.stack = self.stack[-1:], self.stack[:-1]
        return "}" if inner in ("o", "O") else "]"

    def key(self) -> str:
        """What stands between a key and its value."""
        self.keyed = True
        return ": "

    def word(self, text: str) -> str:
        """A bare word: a constant or a number, else a string. As a key always a string."""
        as_key = self.at_key
        lead = self.lead()
        return lead + (f'"{escape(text)}"' if as_key else word(text))


def word(text: str) -> str:
    constant = _CONSTANTS.get(text.lower())
    if constant is not None:
        return constant
    if len(text) < MAX_WORD:
        for kind in (int, float):
            try:
                return dumped(kind(text))
            except ValueError:
                continue
    return f'"{escape(text)}"'
