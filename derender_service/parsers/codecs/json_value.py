"""One JSON value, followed from its first character to its last without being kept."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from derender_service.parsers.codecs.saved import Saved

_AFTER_SCALAR = ",]}"
_IN_STRING = re.compile(r'["\\]')
_WHITE = re.compile(r"\s*")


@lru_cache(maxsize=64)
def _structure(stops: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape('{}[]' + chr(34) + stops)}]")


@lru_cache(maxsize=64)
def _scalar_end(stops: str) -> re.Pattern[str]:
    return re.compile(rf"[{re.escape(_AFTER_SCALAR + stops)}\s]")


def after_white_space(text: str, at: int) -> int:
    match = _WHITE.match(text, at)
    return match.end() if match else at


@dataclass
class JsonValue(Saved):
    """Where one stands within a JSON value: how deep in brackets, and whether in a string.

    Malformed values are followed as far as brackets and quotes go. A scalar at the top ends before a comma, a bracket or white
    space.
    """

    depth: Annotated[int, Field(ge=0)] = 0
    begun: bool = False
    done: bool = False
    quoted: bool = False
    escaped: bool = False

    def take(self, text: str, at: int, stops: str = "") -> int:
        """Reads on from `at`; returns where it stopped: at the end of the value (`done`), of the text, or at a character of `stops`
        that stands outside of strings."""
        while at < len(text) and not self.done:
            if self.quoted:
                at = self._string(text, at)
            elif self.depth:
                match = _structure(stops).search(text, at)
                if match is None:
                    return len(text)
                at = match.start()
                if text[at] not in '{}[]"':
                    return at
                at = self._bracket(text, at)
            elif not self.begun:
                at = after_white_space(text, at)
                if at == len(text) or text[at] in stops:
                    return at
                self.begun = True
                if text[at] in '{["':
                    at = self._bracket(text, at)
            else:
                match = _scalar_end(stops).search(text, at)
                if match is None:
                    return len(text)
                at = match.start()
                if text[at] in stops:
                    return at
                self.done = True
        return at

    def _string(self, text: str, at: int) -> int:
        if self.escaped:
            self.escaped = False
            return at + 1
        match = _IN_STRING.search(text, at)
        if match is None:
            return len(text)
        if match[0] == "\\":
            self.escaped = True
        else:
            self.quoted = False
            self.done = self.depth == 0
        return match.end()

    def _bracket(self, text: str, at: int) -> int:
        character = text[at]
        if character == '"':
            self.quoted = True
        elif character in "{[":
            self.depth += 1
        else:
            self.depth -= 1
            self.done = self.depth == 0
        return at + 1
