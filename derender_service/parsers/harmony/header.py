"""Headers of messages: `assistant<|channel|>commentary to=functions.f <|constrain|>json`, up to `<|message|>`.

openai-harmony reads them. What it refuses, or reads as something that nobody meant, is read here, word by word: then what is no
header word is text that the model said, `stray`, and belongs to the message.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tokenizers import Tokenizer

from derender_service.parsers.names import is_name

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
CHANNELS = ("analysis", "commentary", "final")

Ended = Literal["message", "marker", "output"]
"""What came after the header: its body, some other marker, or nothing, since the output ends (and with it maybe a word)."""

_BUILT_IN = ("python", "browser", "container")
_NO_TOOLS = ("assistant", "user", "all", "functions")
_ROLES = ("assistant", "user", "system", "developer", "tool")
_TYPES = ("json", "code")

_KNOWN = (*_ROLES, *CHANNELS, *_TYPES, "to=")

_NAME = re.compile(r"[\w.]+")
# The prompt's `assistant` stands before the output's first words without a space.
_ROLE = re.compile(r"assistant|(?:user|system|developer|tool)(?![\w.])|[\w.]+(?=\s+to=assistant\b)")
_CHANNEL = re.compile(rf"\s*({'|'.join(CHANNELS)})\b")
_TO = re.compile(rf"(?:\s+(?:{'|'.join(_TYPES)}))?\s*\bto=(\S*)(?:\s+\w+\s*\Z)?")
_TYPE = re.compile(rf"\s*(?:{'|'.join(_TYPES)})\b")
_CONSTRAINED = re.compile(r"\s*\w+\s*(?:\Z|(?=\bto=))")


@dataclass(frozen=True)
class Header:
    """`function` is the name of the function that the body calls; `tool` says that it is for a tool of the model's own instead."""

    channel: str | None = None
    function: str | None = None
    tool: bool = False
    stray: str = ""


class Headers:
    """Reads headers by their ids: perhaps a `<|start|>`, then words and markers. Readings are kept: most headers are alike."""

    def __init__(self, tokenizer: Tokenizer, encoding: "HarmonyEncoding") -> None:
        self._tokenizer, self._encoding = tokenizer, encoding
        self._marks = {self._encoded(mark)[0]: mark for mark in (START, CHANNEL, CONSTRAIN)}
        self._start, self._channel, self._message = (self._encoded(mark)[0] for mark in (START, CHANNEL, MESSAGE))
        self._words = {word: self._encoded(word) for word in ("assistant", *CHANNELS)}
        self.opening = (self._start, *self._words["assistant"])
        """The header that a prompt leaves open for its answer."""
        self.read = lru_cache(maxsize=4096)(self._read)

    def is_open(self, ids: Sequence[int], text: str) -> bool:
        """Whether the header may go on so. `text` is what it says; more of it cannot make up for a word that no header has."""
        if any(mark in (CHANNEL, CONSTRAIN) for token_id in ids if (mark := self._marks.get(token_id))):
            return True
        begun = ids[:1] == (self._start,)
        for place, word in enumerate(text.split()):
            name = begun and not place and _NAME.fullmatch(word)
            if not (name or word.startswith("to=") or any(known.startswith(word) for known in _KNOWN)):
                return False
        return True

    def knows(self, token_id: int) -> bool:
        return self._tokenizer.id_to_token(token_id) is not None

    def lead(self, ids: Sequence[int]) -> tuple[str | None, int]:
        """The channel that the first words name, and how many characters these words are.

        Told by ids, so that it does not depend on how much more of a header there is.
        """
        at, length, channel = int(tuple(ids[:1]) == (self._start,)), 0, None
        role = self._words["assistant"]
        if tuple(ids[at : at + len(role)]) == role:
            at, length = at + len(role), length + len("assistant")
        if tuple(ids[at : at + 1]) == (self._channel,):
            at += 1
            channel = next((word for word in CHANNELS if tuple(ids[at : at + len(self._words[word])]) == self._words[word]), None)
            length += len(channel or "")
        return channel, length

    def _read(self, ids: tuple[int, ...], ended: Ended) -> Header:
        parts = self._parts(ids)
        if ended == "message" and (header := self._asked(ids, parts)) is not None:
            return header
        if ended != "message" and [mark for mark, _ in parts] == [""]:
            # Neither a beginning nor a marker: words that stand between two messages.
            return Header(stray=_said(parts[0][1]))
        return _told(parts, ended)

    def _parts(self, ids: Sequence[int]) -> list[tuple[str, str]]:
        """Each marker with the text after it; the first is "" where there is no `<|start|>`."""
        found: list[tuple[str, list[int]]] = [("", [])]
        for place, token_id in enumerate(ids):
            mark = self._marks.get(token_id)
            if mark is None:
                found[-1][1].append(token_id)
            elif place:
                found.append((mark, []))
            else:
                found = [(mark, [])] if mark == START else [("", []), (mark, [])]
        return [(mark, self._tokenizer.decode(words, skip_special_tokens=False)) for mark, words in found]

    def _asked(self, ids: tuple[int, ...], parts: list[tuple[str, str]]) -> Header | None:
        """What the library says; None where it finds an error, or takes words for what they are not."""
        from openai_harmony import HarmonyError, Role, StreamableParser

        first = parts[0][1]
        words = ids[1:] if ids[:1] == (self._start,) else ids
        if not first.strip() or first.lstrip().startswith("to="):
            words = (*self._words["assistant"], *words)
        parser = StreamableParser(self._encoding, None)
        try:
            for token_id in (self._start, *words, self._message):
                parser.process(token_id)
        except HarmonyError:
            return None
        channel, recipient = parser.current_channel, parser.current_recipient or ""
        text = "".join(mark + words for mark, words in parts)
        addressed = bool(recipient) and f"to={recipient}" in text
        # The library takes any last word for a recipient, and whatever stands before `to=` for the name of a tool.
        misread = (
            "<|" in "".join(words for _, words in parts)
            or (channel or "").startswith("to=")
            or (parser.current_role is Role.TOOL and first.startswith("assistant"))
            or not (addressed or recipient.startswith(CONSTRAIN) or recipient in ("", *_TYPES))
        )
        return None if misread else _header(channel, recipient if addressed else None)

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _told(parts: list[tuple[str, str]], ended: Ended) -> Header:
    """What can be told of a header that is not as the format has it, or not whole. What is in no word's place is stray."""
    channel: str | None = None
    recipient: str | None = None
    stray: list[str] = []
    for number, (mark, rest) in enumerate(parts):
        open_end = ended == "output" and number == len(parts) - 1
        expected: tuple[str, ...] = ("to=",)
        if mark == CONSTRAIN:
            rest = _after(_CONSTRAINED, rest)
        elif mark != CHANNEL:
            expected = ("to=",) if _ROLE.match(rest) else _ROLES
            rest = _after(_ROLE, rest)
        if mark == CHANNEL or (ended == "message" and mark != CONSTRAIN):
            word = _CHANNEL.match(rest)
            channel = channel or (word[1] if word else None)
            expected = ("to=", *_TYPES) if word else CHANNELS
            rest = _after(_CHANNEL, rest)
        if to := _TO.match(rest):
            # The name may go on where the output is cut.
            recipient = recipient or (None if open_end and to.end(1) == len(rest) else to[1])
            rest = rest[to.end() :]
        elif mark == CHANNEL:
            rest = _after(_TYPE, rest)
        if not (open_end and any(word.startswith(rest.strip()) for word in expected)):
            stray.append(rest)
    return _header(channel, recipient, _said("".join(stray)))


def _after(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.match(text)
    return text[match.end() :] if match else text


def _said(text: str) -> str:
    return text if text.strip() else ""


def _header(channel: str | None, recipient: str | None, stray: str = "") -> Header:
    """A recipient makes a call, whatever the channel; the model's built-in tools are no functions of the client."""
    if not recipient or recipient in _NO_TOOLS:
        return Header(channel, stray=stray)
    if recipient.split(".")[0] in _BUILT_IN:
        return Header(channel, tool=True, stray=stray)
    name = recipient.removeprefix("functions.")
    return Header(channel, name if is_name(name) else None, stray=stray)
