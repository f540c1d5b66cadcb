"""The arguments of a call whose name a marker has already ended: one JSON value, or whatever stands in its place."""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from derender_service.parsers.codecs.arguments import JsonArguments
from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.saved import Saved
from derender_service.parsers.events import Arguments, Event


@lru_cache(maxsize=64)
def _any_of(characters: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters)}]")


@dataclass
class JsonBody(Saved):
    """`loose`: this is no JSON object, list or string, so only a marker can tell where it ends."""

    arguments: JsonArguments = field(default_factory=JsonArguments)
    loose: bool = False
    begun: bool = False

    started = True
    raw = ""
    refused = False

    @property
    def done(self) -> bool:
        return self.arguments.done

    @property
    def quoted(self) -> bool:
        return self.arguments.quoted

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        if not self.begun:
            at = after_white_space(text, at)
            if at == len(text) or text[at] in stops:
                return [], at
            self.begun, self.loose = True, text[at] not in '{["n'
        if self.loose:
            match = _any_of(stops).search(text, at) if stops else None
            end = match.start() if match else len(text)
            return _arguments(text[at:end]), end
        shown, end = self.arguments.read(text, at, stops)
        return _arguments(shown), end

    def skip(self, text: str, at: int) -> int:
        return at

    def finish(self) -> list[Event]:
        return _arguments(self.arguments.cut())


def _arguments(text: str) -> list[Event]:
    return [Arguments(text)] if text else []
