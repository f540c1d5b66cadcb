"""From ids to events, a stretch at a time: as plain text, by a grammar, or by a plug-in that is replayed.

A source belongs to one choice of one request. `Place` is where it stands; reading returns a new one, so that the same stretch
can be read again in other cuts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import ValidationError
from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.checkpoint import PARAM, refused
from derender_service.parsers.driver import read
from derender_service.parsers.events import Content, Event
from derender_service.parsers.grammar import Grammar
from derender_service.parsers.pieces import Text, pieces
from derender_service.parsers.plugins import Plugin
from derender_service.parsers.run import StuckParser, Types
from derender_service.parsers.state import State
from derender_service.window import Window
from protocol.errors import BadRequest


@dataclass(frozen=True)
class Place:
    """`window` is the decoder's. `parse` is the grammar's state, where there is one."""

    window: Window
    parse: State | None = None


@dataclass(frozen=True)
class Stretch:
    """What some ids gave. `characters` were decoded; `reasoning` of the ids were reasoning (None: not counted)."""

    events: list[Event]
    place: Place
    characters: int
    reasoning: int | None


class Source(Protocol):
    @property
    def detokenizer(self) -> Detokenizer: ...

    @property
    def divisible(self) -> bool:
        """Whether any cut of the ids gives the same events."""

    def read(self, place: Place, token_ids: Sequence[int], *, last: bool) -> Stretch:
        """`last`: the output ends with these. Raises `BadRequest` for a place that no reading can have led to."""


@dataclass(frozen=True)
class PlainSource:
    """No parser: all text is content."""

    detokenizer: Detokenizer
    keep_special: bool
    join_added: bool
    divisible: bool = True

    def read(self, place: Place, token_ids: Sequence[int], *, last: bool) -> Stretch:
        text, window = self.detokenizer.push(place.window, token_ids, keep_special=self.keep_special, join_added=self.join_added)
        if last:
            text += self.detokenizer.finish(window)
        return Stretch([Content(text)] if text else [], Place(window), len(text), 0)


@dataclass(frozen=True)
class GrammarSource:
    """`ended`: where the output ends, the model ended it (see `parsers.driver.read`)."""

    detokenizer: Detokenizer
    grammar: Grammar
    types: Types
    named: str
    keep_special: bool
    join_added: bool
    divisible: bool = True
    ended: bool = False

    def read(self, place: Place, token_ids: Sequence[int], *, last: bool) -> Stretch:
        stretch = self._read(place, token_ids, last=last)
        return stretch if stretch.reasoning is not None else replace(stretch, reasoning=self._reasoning(place, token_ids)[0])

    def _read(self, place: Place, token_ids: Sequence[int], *, last: bool) -> Stretch:
        assert place.parse is not None
        found, window = pieces(
            self.detokenizer,
            self.grammar.marks,
            place.window,
            token_ids,
            keep_special=self.keep_special,
            join_added=self.join_added,
        )
        if last and (rest := self.detokenizer.finish(window)):
            found.append(Text(rest, ()))
        try:
            reading = read(self.grammar, place.parse, found, last=last, ended=self.ended, types=self.types, named=self.named)
        except (StuckParser, ValidationError) as error:
            raise refused(error) from error
        characters = sum(len(piece.text) for piece in found)
        return Stretch(reading.events, Place(window, reading.state), characters, reading.reasoning_tokens)

    def _reasoning(self, place: Place, token_ids: Sequence[int]) -> tuple[int, Place]:
        """Reasoning tokens where a run of ids held the end of reasoning, and where the run leads to. The run is halved until no
        part of several ids holds one: that reads each id a few times, and not each by itself."""
        stretch = self._read(place, token_ids, last=False)
        if stretch.reasoning is not None:
            return stretch.reasoning, stretch.place
        half = len(token_ids) // 2
        first, place = self._reasoning(place, token_ids[:half])
        second, place = self._reasoning(place, token_ids[half:])
        return first + second, place


@dataclass(frozen=True)
class PluginSource:
    """Replays: `history` are the ids so far, in the chunks in which they came."""

    detokenizer: Detokenizer
    tokenizer: Tokenizer
    plugin: Plugin
    opening: str
    start: Window
    history: tuple[tuple[int, ...], ...]
    divisible: bool = False

    def read(self, place: Place, token_ids: Sequence[int], *, last: bool) -> Stretch:
        parser = self.plugin.resume(json.loads(self.opening), self.tokenizer)
        window, events, text = self.start, list[Event](), ""
        for ids in (*self.history, token_ids):
            text, window = self.detokenizer.push(window, ids, keep_special=True)
            events = list(parser.parse_delta(text, ids)) if ids or text else []
        if last:
            if rest := self.detokenizer.finish(window):
                events += parser.parse_delta(rest, ())
            events += parser.finish()
        return Stretch(events, Place(window), len(text), None)


def history_of(token_ids: Sequence[int], lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Ids in their chunks. Raises `BadRequest` where the lengths do not cover the ids."""
    chunks, at = [], 0
    for length in lengths:
        chunks.append(tuple(token_ids[at : at + length]))
        at += length
    if at != len(token_ids):
        raise BadRequest("output_chunk_lens must sum to the number of output_token_ids", param=PARAM)
    return tuple(chunks)
