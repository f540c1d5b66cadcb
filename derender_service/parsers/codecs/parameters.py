"""Calls whose arguments are written one by one, as text: they become a JSON object, typed by the tool's schema."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from derender_service.parsers.codecs.json_string import escape
from derender_service.parsers.codecs.parameter_types import STRING, Kind, may_become, typed
from derender_service.parsers.codecs.saved import Saved
from derender_service.parsers.events import Arguments, Event


@dataclass
class Parameters(Saved):
    """`count` parameters have begun, `key` is the next. `kinds` are the types of the one being read; `seen` its text so far,
    unless it is `flowing`: sent as it comes, since it can only be a string."""

    tool: str = ""
    count: Annotated[int, Field(ge=0)] = 0
    key: str = ""
    kinds: Kind = STRING
    seen: str = ""
    flowing: bool = False

    def begin(self) -> list[Event]:
        """The value of `key`, of `kinds`, follows."""
        lead, key = ", " if self.count else "{", escape(self.key)
        self.count += 1
        self.key, self.seen, self.flowing = "", "", self.kinds == STRING
        return [Arguments(f'{lead}"{key}": ' + ('"' if self.flowing else ""))]

    def value(self, text: str) -> list[Event]:
        """Further text of the value."""
        if self.flowing:
            return [Arguments(escape(text))] if text else []
        seen, self.seen = self.seen, ""
        seen += text  # in place, since nothing else holds it: markers in a value come one by one
        self.seen = seen
        if STRING not in self.kinds or may_become(self.seen, self.kinds):
            return []
        self.flowing, self.seen = True, ""
        return [Arguments('"' + escape(seen))]

    def end(self) -> list[Event]:
        """The value has ended."""
        text = '"' if self.flowing else typed(self.seen, self.kinds)
        self.seen, self.flowing = "", False
        return [Arguments(text)]

    def close(self) -> list[Event]:
        """The call has ended."""
        return [Arguments("}" if self.count else "{}")]
