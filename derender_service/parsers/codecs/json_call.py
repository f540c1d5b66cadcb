"""Calls as JSON objects: `{"name": …, "arguments": …}`, in either key order, alone or in an array."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from derender_service.parsers.codecs.arguments import JsonArguments
from derender_service.parsers.codecs.json_string import unescape
from derender_service.parsers.codecs.json_value import JsonValue, after_white_space
from derender_service.parsers.codecs.kept import addition, kept
from derender_service.parsers.codecs.saved import Saved
from derender_service.parsers.events import Arguments, CallStart, Event
from derender_service.parsers.names import MAX_NAME, is_name

Expects = Literal["object", "first key", "next key", "key", "colon", "value", "name", "arguments", "other", "comma"]

MAX_SPARE = 1_000
ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass
class JsonCall(Saved):
    """Reads one object. Other keys than the name and the arguments are read over.

    `raw` is the text since the object began, while no call has come of it: if none does, it is content. With `sure` a name alone is
    not enough: the object counts as a call only once its arguments have begun (for formats without markers, where any JSON answer
    begins like a call). `spare` counts the characters of other values before it is known for a call: many make it none.
    `refused`: this is no call. `done`: the object has ended.
    """

    sure: bool = False
    expects: Expects = "object"
    word: str = ""
    escaped: bool = False
    key: str = ""
    name: str = ""
    started: bool = False
    written: bool = False
    early: str = ""
    arguments: JsonArguments = field(default_factory=JsonArguments)
    other: JsonValue | None = None
    spare: Annotated[int, Field(ge=0)] = 0
    raw: str = ""
    refused: bool = False
    done: bool = False

    @property
    def quoted(self) -> bool:
        """Whether the next character stands within a string, where nothing is markup."""
        if self.expects == "other":
            return self.other is not None and self.other.quoted
        return self.expects in ("key", "name") or (self.expects == "arguments" and self.arguments.quoted)

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        """The events of the text from `at` on, and where reading stopped: at the end of the object (`done`, `refused`), of the
        text, or at a character outside of strings that JSON cannot have there, or that `stops` names."""
        start, events = at, list[Event]()
        while at < len(text) and not (self.done or self.refused):
            before = at
            at = self._step(text, at, stops, events)
            if at == before and not (self.done or self.refused):
                break
        raw, self.raw = self.raw, ""
        if not self.started:
            raw += addition(raw, text[start:at])  # in place, since nothing else holds it: markers in a string come one by one
            self.raw = raw
        return events, at

    def skip(self, text: str, at: int) -> int:
        """Reads over a character that `take` stopped at and that turned out to be no markup."""
        if self.expects in ("arguments", "other"):
            return at
        if not self.started:
            self.refused = True
            return at
        return at + 1

    def finish(self) -> list[Event]:
        """What is due where the call ends before the object does: the arguments as they stand."""
        return [Arguments(cut)] if self.started and (cut := self.arguments.cut()) else []

    def _step(self, text: str, at: int, stops: str, events: list[Event]) -> int:
        if self.expects in ("key", "name"):
            return self._word(text, at, events)
        if self.expects == "arguments":
            return self._arguments(text, at, stops, events)
        if self.expects == "other" and self.other is not None:
            return self._other(self.other, text, at, stops)
        at = after_white_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if self.expects == "object" and character == "{":
            self.expects = "first key"
        elif self.expects in ("first key", "next key", "comma") and character == '"':
            self.expects, self.word = "key", ""
        elif self.expects == "comma" and character == ",":
            self.expects = "next key"
        elif self.expects in ("first key", "next key", "comma") and character == "}":
            self._close(events)
        elif self.expects == "colon" and character == ":":
            self.expects = "value"
        elif self.expects == "value" and character not in stops and character not in ",}]":
            return self._value(character, at)
        elif character in stops or self.started:
            return at
        else:
            self.refused = True
            return at
        return at + 1

    def _word(self, text: str, at: int, events: list[Event]) -> int:
        """Characters of a key or of the name, up to the closing quote."""
        while at < len(text):
            character = text[at]
            at += 1
            if character == '"' and not self.escaped:
                if self.expects == "key":
                    self.key, self.expects = unescape(self.word), "colon"
                else:
                    self._named(unescape(self.word), events)
                self.word = ""
                break
            self.escaped = character == "\\" and not self.escaped
            if len(self.word) <= 2 * MAX_NAME:
                self.word += character
            elif not self.started:
                self.refused = True
                break
        return at

    def _value(self, character: str, at: int) -> int:
        if self.key == "name" and character == '"' and not self.name:
            self.expects = "name"
            return at + 1
        if self.key in ARGUMENT_KEYS and not self.written:
            self.expects, self.written = "arguments", True
            return at
        self.expects, self.other = "other", JsonValue()
        return at

    def _named(self, name: str, events: list[Event]) -> None:
        self.expects = "comma"
        if not is_name(name):
            self.refused = not self.started
            return
        self.name = name
        if not self.sure or self.written:
            self._start(events)

    def _start(self, events: list[Event]) -> None:
        self.started = True
        events.append(CallStart(self.name))
        if self.early:
            events.append(Arguments(self.early))
            self.early = ""

    def _arguments(self, text: str, at: int, stops: str, events: list[Event]) -> int:
        shown, at = self.arguments.read(text, at, stops)
        if self.arguments.begun and self.name and not self.started:
            self._start(events)
        if shown and self.started:
            events.append(Arguments(shown))
        elif shown:
            early, self.early = self.early, ""
            early += shown  # in place, as in `take`
            self.early = early
        if self.arguments.done:
            self.expects = "comma"
        return at

    def _other(self, value: JsonValue, text: str, at: int, stops: str) -> int:
        """The value of a key that means nothing here."""
        waits = not self.started
        end = value.take(text[: at + MAX_SPARE - self.spare] if waits else text, at, stops)
        self.spare += end - at if waits else 0
        self.refused = waits and self.spare >= MAX_SPARE
        if value.done:
            self.expects, self.other = "comma", None
        return end

    def _close(self, events: list[Event]) -> None:
        self.done = self.started
        self.refused = not self.started
        if self.started and not self.written:
            events.append(Arguments("{}"))


@dataclass
class JsonCalls(Saved):
    """Reads an array of such objects. `opened`: its bracket has been read already. `count` calls have come of it."""

    sure: bool = False
    opened: bool = False
    call: JsonCall | None = None
    count: Annotated[int, Field(ge=0)] = 0
    raw: str = ""
    refused: bool = False
    done: bool = False

    @property
    def quoted(self) -> bool:
        return self.call is not None and self.call.quoted

    @property
    def started(self) -> bool:
        return self.call is not None and self.call.started

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        """See `JsonCall.take`; `done` at the closing bracket."""
        events = list[Event]()
        while at < len(text) and not (self.done or self.refused):
            if self.call is not None:
                found, at = self.call.take(text, at, stops)
                events += found
                if any(isinstance(event, CallStart) for event in found):
                    self.count, self.raw = self.count + 1, ""
                if self.call.refused:
                    self.refused, self.raw, self.call = True, self.raw + self.call.raw, None
                elif self.call.done:
                    self.call = None
                elif at < len(text):
                    return events, at
                continue
            before, at = at, after_white_space(text, at)
            if at < len(text):
                character = text[at]
                if not self.opened and character == "[":
                    self.opened = True
                elif self.opened and character == "{":
                    self.raw = "" if self.count else kept(self.raw, text[before:at])
                    self.call = JsonCall(sure=self.sure)
                    continue
                elif self.opened and character == "]":
                    self._end()
                elif not (self.opened and self.count and character == ","):
                    if character not in stops:
                        self._end()
                    self._keep(text[before:at])
                    return events, at
                at += 1
            self._keep(text[before:at])
        return events, at

    def skip(self, text: str, at: int) -> int:
        if self.call is not None:
            return self.call.skip(text, at)
        self._end()
        return at

    def _end(self) -> None:
        """Something else than a further call stands here: after a call the array has ended, without its bracket."""
        self.done, self.refused = bool(self.count), not self.count

    def finish(self) -> list[Event]:
        if self.call is None:
            return []
        due = self.call.finish()
        if not self.call.started:
            self.raw += self.call.raw
        return due

    def _keep(self, text: str) -> None:
        if not self.count:
            self.raw = kept(self.raw, text)
