"""Gemma's calls: `call:NAME{key:value,…}`, with strings between delimiters and nothing escaped."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from derender_service.parsers.codecs.json_string import escape
from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.kept import kept
from derender_service.parsers.codecs.literals import MAX_DEPTH, MAX_WORD, JsonBuilder
from derender_service.parsers.codecs.saved import Saved
from derender_service.parsers.events import Arguments, CallStart, Event
from derender_service.parsers.names import MAX_NAME, is_name

_LEAD = "call:"


_AFTER_WORD = ",:{}[]"


@lru_cache(maxsize=64)
def _word_end(stops: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(_AFTER_WORD + stops)}]")


@dataclass
class GemmaCall(Saved):
    """Reads one call. `delimiter` opens and closes strings; as a token it comes by `delimit`, as text it is looked for in the text
    (`spelled`). Strings are raw: nothing ends them but the delimiter."""

    delimiter: str = ""
    spelled: bool = False
    expects: Literal["lead", "name", "pair", "value", "string", "word", "long word", "next"] = "lead"
    text: str = ""
    json: JsonBuilder = field(default_factory=JsonBuilder)
    started: bool = False
    raw: str = ""
    refused: bool = False
    done: bool = False

    @property
    def quoted(self) -> bool:
        return self.expects == "string"

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        events, start = list[Event](), at
        while at < len(text) and not (self.done or self.refused):
            before, expected = at, self.expects
            at = self._step(text, at, stops, events)
            if at == before and self.expects == expected and not (self.done or self.refused):
                break
        self.raw = "" if self.started else kept(self.raw, text[start:at])
        return events, at

    def delimit(self) -> list[Event]:
        """The delimiter, as a token."""
        if self.expects == "string":
            self.expects = "next"
            return [Arguments(escape(self._flush()) + '"')]
        if self.expects in ("value", "pair", "word") and self.started:
            self.expects, self.text = "string", ""
            return [Arguments(self.json.lead() + '"')]
        self.refused = not self.started
        return []

    def skip(self, text: str, at: int) -> int:
        return at + 1

    def finish(self) -> list[Event]:
        # What may have become the delimiter is left out: more of the output might have made it one.
        return []

    def _flush(self) -> str:
        text, self.text = self.text, ""
        return text

    def _step(self, text: str, at: int, stops: str, events: list[Event]) -> int:
        if self.expects == "string":
            return self._string(text, at, events)
        if self.expects in ("word", "long word"):
            return self._word(text, at, stops, events)
        at = after_white_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if self.expects == "lead":
            self.text += character
            self.refused = not _LEAD.startswith(self.text)
            if self.text == _LEAD:
                self.expects, self.text = "name", ""
            return at + (not self.refused)
        if self.expects == "name":
            return self._name(character, at, events)
        if self.spelled and self.expects in ("pair", "value") and self.delimiter.startswith(self.text + character):
            self.text += character
            if self.text == self.delimiter:
                events += self.delimit()
            return at + 1
        if self.text and self.expects in ("pair", "value"):
            self.expects = "word"
            return at
        if character in stops and character not in "{[":
            return at
        if character in "}]":
            return self._close(at, events)
        if self.expects == "next":
            if character == ":":
                events.append(Arguments(self.json.key()))
                self.expects = "value"
            elif character == ",":
                self.expects = "pair"
            return at + 1
        if character in "{[" and not self.json.at_key:
            if len(self.json.stack) < MAX_DEPTH:
                events.append(Arguments(self.json.open(character)))
                self.expects = "pair"
            return at + 1
        if character in ",:":
            return at + 1
        self.expects = "word"
        return at

    def _name(self, character: str, at: int, events: list[Event]) -> int:
        if character == "{" and is_name(self.text):
            events += [CallStart(self.text), Arguments(self.json.open("{"))]
            self.started, self.expects, self.text = True, "pair", ""
            return at + 1
        self.text += character
        self.refused = character in "{}" or len(self.text) > MAX_NAME
        return at + (not self.refused)

    def _close(self, at: int, events: list[Event]) -> int:
        events.append(Arguments(self.json.close()))
        self.done = not self.json.stack
        self.expects = "next"
        return at + 1

    def _string(self, text: str, at: int, events: list[Event]) -> int:
        if not self.spelled:
            events.append(Arguments(escape(text[at:])))
            return len(text)
        body = self.text + text[at:]
        end = body.find(self.delimiter)
        if end >= 0:
            used = end + len(self.delimiter) - len(self.text)
            events.append(Arguments(escape(body[:end]) + '"'))
            self.expects, self.text = "next", ""
            return at + used
        wait = next((n for n in range(len(self.delimiter) - 1, 0, -1) if body.endswith(self.delimiter[:n])), 0)
        shown, self.text = body[: len(body) - wait], body[len(body) - wait :]
        if shown:
            events.append(Arguments(escape(shown)))
        return len(text)

    def _word(self, text: str, at: int, stops: str, events: list[Event]) -> int:
        """A constant, a number, or a string without delimiters."""
        match = _word_end(stops).search(text, at)
        end = match.start() if match else len(text)
        if self.expects == "long word":
            events.append(Arguments(escape(text[at:end])))
        else:
            room = MAX_WORD - len(self.text)
            self.text += text[at : min(end, at + room)]
            if end - at > room:
                events.append(Arguments(self.json.lead() + '"' + escape(self._flush())))
                self.expects = "long word"
                return at + room
        if match and text[end] in _AFTER_WORD:
            events.append(Arguments('"' if self.expects == "long word" else self.json.word(self._flush().strip())))
            self.expects = "next"
        return end
