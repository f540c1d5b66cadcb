"""The arguments of a call whose format writes them as JSON: passed on as the model wrote them."""

from dataclasses import dataclass
from typing import Literal

from derender_service.parsers.codecs.json_string import unescape, unescaped
from derender_service.parsers.codecs.json_value import JsonValue

_MAX_LEAD = 64
"""White space that may stand before the object in a string."""


@dataclass
class JsonArguments(JsonValue):
    """A JSON value as arguments text, never re-serialised.

    Two exceptions: a JSON string that holds an object is decoded once, since some models write arguments so; null and an empty
    string are `{}`, since no arguments are.
    `seen` is text that waits: until it is decided what it is (`form` is `raw` or `decoded` then), or for the rest of an escape.
    """

    form: Literal["", "raw", "decoded"] = ""
    seen: str = ""

    def read(self, text: str, at: int, stops: str = "") -> tuple[str, int]:
        """The arguments text that can be sent, and where reading stopped (see `take`)."""
        end = self.take(text, at, stops)
        return self._show(text[at:end]), end

    def cut(self) -> str:
        """What is still due where the output ends within the value: as it stands."""
        waiting = "" if self.form == "decoded" else self.seen
        if waiting == "null":
            return "{}"
        return waiting if waiting not in ("", '"') else ""

    def _show(self, text: str) -> str:
        if self.form == "raw":
            return text
        if self.form == "decoded":
            return self._decode(text)
        self.seen = (self.seen + text).lstrip()
        if self.seen.startswith('"'):
            inner = unescaped(self.seen[1:].removesuffix('"') if self.done else self.seen[1:])[0]
            bare = inner.lstrip()
            waits = len(inner) - len(bare) <= _MAX_LEAD
            if waits and bare.startswith("{"):
                self.form, seen, self.seen = "decoded", self.seen[1:], ""
                return self._decode(seen)
            nothing = waits and not bare
        else:
            nothing = self.seen == "null" if self.done else "null".startswith(self.seen)
        if nothing and not self.done:
            return ""
        self.form, seen, self.seen = "raw", self.seen, ""
        return "{}" if nothing else seen

    def _decode(self, text: str) -> str:
        if self.done:
            shown, self.seen = unescape(self.seen + text[:-1]), ""
        else:
            shown, self.seen = unescaped(self.seen + text)
        return shown
