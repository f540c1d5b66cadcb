"""Calls as a Python list: `[name(key=value, …), …]`. Values are literals, and become JSON as they come."""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from derender_service.parsers.codecs.json_string import escape
from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.kept import kept
from derender_service.parsers.codecs.literals import MAX_DEPTH, MAX_WORD, JsonBuilder
from derender_service.parsers.codecs.saved import Saved
from derender_service.parsers.events import Arguments, CallStart, Event
from derender_service.parsers.names import MAX_NAME, is_name

Expects = Literal["list", "call", "name", "keyword", "value", "string", "triple?", "word", "next", "comma", "broken"]

_IDENTIFIER = re.compile(r"[\w.\-]+")
_WORD_END = re.compile(r"[,()\[\]{}:\n]")
_PLAIN = {q: re.compile(rf"[^\\{q}]+") for q in "'\""}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": ""}
_CODES = {"x": 2, "u": 4, "U": 8}


@dataclass
class PythonCalls(Saved):
    """Reads the whole list. A call counts as one once `name(` is followed by `)` or by a keyword and `=`: prose may begin with a
    bracket too. What is no literal makes the arguments end as they stand, followed by the model's own text.

    `quote` is the one or three quotes that end the string being read, `escape` an escape of which the end has not come.
    """

    expects: Expects = "list"
    text: str = ""
    name: str = ""
    quote: Literal["", "'", '"', "'''", '"""'] = ""
    escape: Annotated[str, Field(max_length=64)] = ""
    json: JsonBuilder = field(default_factory=JsonBuilder)
    count: Annotated[int, Field(ge=0)] = 0
    raw: str = ""
    refused: bool = False
    done: bool = False

    @property
    def started(self) -> bool:
        return self.count > 0

    @property
    def quoted(self) -> bool:
        return self.expects == "string" or (self.expects == "triple?" and not self.text)

    def take(self, text: str, at: int, stops: str = "") -> tuple[list[Event], int]:
        events, start = list[Event](), at
        while at < len(text) and not (self.done or self.refused):
            at = self._step(text, at, events)
            if not self._unnamed:
                self.raw, start = "", at
        self.raw = kept(self.raw, text[start:at])
        return events, at

    @property
    def _unnamed(self) -> bool:
        """Whether what stands here is content if it goes on as no call does."""
        return self.count == 0 or self.expects == "name" or (self.expects == "keyword" and self.name != "")

    def skip(self, text: str, at: int) -> int:
        return at + 1

    def finish(self) -> list[Event]:
        return []

    def _step(self, text: str, at: int, events: list[Event]) -> int:
        if self.expects == "string":
            return self._string(text, at, events)
        if self.expects == "word":
            return self._word(text, at, events)
        if self.expects == "broken":
            events.append(Arguments(text[at:]))
            return len(text)
        if self.expects == "triple?":
            return self._maybe_triple(text, at, events)
        at = after_white_space(text, at)
        if at == len(text):
            return at
        if self.expects in ("name", "keyword"):
            return self._identifier(text, at, events)
        character = text[at]
        if self.expects == "list":
            self._expect("call", character == "[")
        elif self.expects == "call":
            if character == "]" and self.count:
                self.done = True
            elif character != "," or not self.count:
                self.expects, self.text = "name", ""
                self._expect("name", _IDENTIFIER.match(character) is not None)
                return at
        elif self.expects == "value":
            return self._value(character, at, events)
        elif self.expects == "next":
            return at + self._after(character, events)
        return at + 1

    def _expect(self, following: Expects, right: bool) -> None:
        if right:
            self.expects = following
        else:
            self.refused = True

    def _identifier(self, text: str, at: int, events: list[Event]) -> int:
        """The name up to `(`, or a keyword up to `=`."""
        match = _IDENTIFIER.match(text, at)
        if match:
            self.text += match[0]
            if len(self.text) > MAX_NAME:
                self._expect("name", False)
            return match.end()
        character = text[at]
        if self.expects == "name":
            self._expect("keyword", character == "(" and is_name(self.text))
            self.name, self.text = self.text, ""
        elif character == "=" and self.text:
            self._begin(events)
            events.append(Arguments(("{" if not self.json.stack else "") + self._keyword()))
            self.expects, self.text = "value", ""
        elif character == ")" and not self.text:
            self._begin(events)
            events.append(Arguments(self.json.close() if self.json.stack else "{}"))
            self.expects = "call"
        elif self.name:
            self._expect("keyword", False)
        else:
            self.expects = "broken"
            events.append(Arguments(self.text))
            return at
        return at + 1

    def _begin(self, events: list[Event]) -> None:
        if self.name:
            events.append(CallStart(self.name))
            self.name, self.count, self.json = "", self.count + 1, JsonBuilder()

    def _keyword(self) -> str:
        if not self.json.stack:
            self.json.stack = "o"
        return f'{self.json.lead()}"{escape(self.text)}"{self.json.key()}'

    def _value(self, character: str, at: int, events: list[Event]) -> int:
        if character in "'\"":
            self.expects, self.quote = "triple?", '"' if character == '"' else "'"
            return at + 1
        if character in "[{(" and len(self.json.stack) < MAX_DEPTH:
            events.append(Arguments(self.json.open("[" if character == "(" else character)))
            return at + 1
        if character in "]})":
            return at + self._after(character, events)
        if character in ",=:[{(":
            self.expects = "broken"
            return at
        self.expects, self.text = "word", ""
        return at

    def _after(self, character: str, events: list[Event]) -> bool:
        """After a value: a separator, or the end of a bracket or of the call. False for anything else."""
        depth = len(self.json.stack)
        if character == "," and depth > 1:
            self.expects = "value"
        elif character == ",":
            self.expects, self.text = "keyword", ""
        elif character == ":" and self.json.at_key and depth > 1:
            events.append(Arguments(self.json.key()))
            self.expects = "value"
        elif character in "]})" and (depth > 1 or character == ")"):
            events.append(Arguments(self.json.close()))
            self.expects = "next" if depth > 1 else "call"
        else:
            self.expects = "broken"
        return self.expects != "broken"

    def _maybe_triple(self, text: str, at: int, events: list[Event]) -> int:
        """After an opening quote: a second one is an empty string, or with a third the beginning of a long one."""
        quote = self.quote[0]
        if self.text == quote:
            self.text = ""
            if text[at] == quote:
                self.expects, self.quote = "string", '"""' if quote == '"' else "'''"
                events.append(Arguments(self.json.lead() + '"'))
                return at + 1
            events.append(Arguments(self.json.lead() + '""'))
            self.expects = "next"
            return at
        if text[at] == quote:
            self.text = quote
            return at + 1
        self.expects = "string"
        events.append(Arguments(self.json.lead() + '"'))
        return at

    def _string(self, text: str, at: int, events: list[Event]) -> int:
        if self.escape:
            return self._escaped(text, at, events)
        if self.text:
            return self._closing(text, at, events)
        match = _PLAIN[self.quote[0]].match(text, at)
        if match:
            events.append(Arguments(escape(match[0])))
            return match.end()
        if text[at] == "\\":
            self.escape = "\\"
            return at + 1
        return self._closing(text, at, events)

    def _closing(self, text: str, at: int, events: list[Event]) -> int:
        """Quotes that may end the string: all of them, or they are text."""
        if text[at] == self.quote[0]:
            self.text += text[at]
            if self.text == self.quote:
                self.expects, self.text, self.quote = "next", "", ""
                events.append(Arguments('"'))
            return at + 1
        events.append(Arguments(escape(self.text)))
        self.text = ""
        return at

    def _escaped(self, text: str, at: int, events: list[Event]) -> int:
        self.escape += text[at]
        found = _unescaped(self.escape)
        if found is not None:
            spelled, used = found
            at -= len(self.escape) - used - 1
            events.append(Arguments(spelled))
            self.escape = ""
            return max(at, 0)
        return at + 1

    def _word(self, text: str, at: int, events: list[Event]) -> int:
        match = _WORD_END.search(text, at)
        end = match.start() if match else len(text)
        room = MAX_WORD - len(self.text)
        self.text += text[at : min(end, at + room)]
        if end - at > room:
            events.append(Arguments(self.text))
            self.expects, self.text = "broken", ""
            return at + room
        if match:
            events.append(Arguments(self.json.word(self.text.strip())))
            self.expects, self.text = "next", ""
        return end


def _unescaped(text: str) -> tuple[str, int] | None:
    """What an escape stands for, as JSON string content, and how many of its characters it takes; None while it may go on."""
    kind = text[1]
    if kind in _ESCAPES:
        return escape(_ESCAPES[kind]), 2
    if kind in _CODES:
        digits = text[2:]
        if digits and not re.fullmatch("[0-9a-fA-F]+", digits):
            return escape(text[:-1]), len(text) - 1
        if len(digits) < _CODES[kind]:
            return None
        code = int(digits, 16)
        if 0xD800 <= code < 0xE000:
            return f"\\u{code:04x}", len(text)
        return escape(chr(code)) if code < 0x110000 else escape(text), len(text)
    if kind == "N" and (text == "\\N" or (text[2] == "{" and not text.endswith("}") and len(text) < 60)):
        return None
    if kind == "N" and text.endswith("}"):
        try:
            return escape(unicodedata.lookup(text[3:-1])), len(text)
        except KeyError:
            return escape(text), len(text)
    if kind in "01234567":
        octal = re.match("[0-7]{1,3}", text[1:])
        if octal and len(octal[0]) == len(text) - 1 < 3:
            return None
        return escape(chr(int(octal[0], 8))) if octal else escape(text), 1 + len(octal[0]) if octal else len(text)
    return escape(text), len(text)
