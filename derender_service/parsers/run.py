"""One stretch of a stream being parsed: the working copy of a state, and what regions may do to it."""

from collections.abc import Mapping, Sequence, Set
from itertools import groupby
from typing import TYPE_CHECKING

from derender_service.parsers.codecs.kept import kept
from derender_service.parsers.events import Arguments, CallStart, Content, Event, Reasoning
from derender_service.parsers.markers import Step
from derender_service.parsers.pieces import Mark, Piece
from derender_service.parsers.state import State

if TYPE_CHECKING:
    from derender_service.parsers.regions import Region

Types = Mapping[str, Mapping[str, str]]
"""By tool, the types of its parameters that are not plain strings (see `codecs.parameter_types`)."""

CONTENT = "content"
REFUSED = "refused"
REASONING = "reasoning"
REFUSED_THOUGHT = "refused thought"

MAX_RAW = 2_000
"""Characters of markup without a call. More of it is content: a model may fall into repeating a marker, and a state is bounded."""
MAX_STALLED = 64
"""Steps without a character read. A grammar needs a few at most: a region that looks ahead, and leaves the text to the next."""


class StuckParser(ValueError):
    """A state that no run of the grammar can have left; it came from a client."""


class Run:
    """Reads pieces in regions. `crossed` says that reasoning began or ended since it was last cleared."""

    def __init__(self, regions: Mapping[str, "Region"], state: State, tokens: Set[str], types: Types, named: str) -> None:
        self._regions, self.tokens, self.types, self.named = regions, tokens, types, named
        self.state = state
        self.events: list[Event] = []
        self.called = ""
        self.ids: Sequence[int] = ()
        self.crossed = False
        if state.region not in regions:
            raise StuckParser(f"the parser has no region {state.region!r}")
        self.region = regions[state.region]
        self.reader = self.region.load(state.reader, self)

    def read(self, piece: Piece) -> None:
        if isinstance(piece, Mark):
            self.state.skip = ""
            self._mark(piece)
            return
        self.ids = piece.ids
        if self.region.by_id:
            self.region.take(self, piece.text, 0)
        else:
            self.text(self.state.held + piece.text)

    def text(self, text: str) -> None:
        """Reads text in this region and those that follow. What was held must be its beginning."""
        self.state.held, at, stalled = "", 0, 0
        while at < len(text):
            before, at = at, self._skipped(text, at)
            at = self.region.take(self, text, at)
            stalled = stalled + 1 if at == before else 0
            if stalled > MAX_STALLED:
                raise self._stuck()

    def _mark(self, mark: Mark) -> None:
        for _ in range(MAX_STALLED):
            if self.region.mark(self, mark):
                return
        raise self._stuck()

    def _stuck(self) -> StuckParser:
        return StuckParser(f"the parser's state does not fit region {self.state.region!r}")

    def finish(self, *, ended: bool = False) -> None:
        """The output has ended. What was held back is no markup. A call that the model `ended` is whole where it lacks no more than
        its end marker, and one without arguments has none."""
        if ended:
            self.region.end(self)
        self.region.finish(self)
        if ended and self.state.open:
            if self.region.whole:
                self.region.close(self)
            if not self.state.written:
                self.emit(Arguments("{}"))
        self._unkept()

    def saved(self) -> State:
        self.state.reader = None if self.reader is None else self.reader.dump()
        return self.state

    def emit(self, event: Event) -> None:
        state = self.state
        if isinstance(event, CallStart):
            state.open, state.written = True, False
            state.raw, state.thought, self.called = "", False, event.name
        elif isinstance(event, Arguments):
            state.written = True
        elif not event.text:
            return
        self.events.append(event)

    def keep(self, text: str) -> None:
        """Markup that is content after all if no call comes of it."""
        self.state.raw = kept(self.state.raw, text)

    def _unkept(self) -> None:
        """No call came of what was kept: it is content. White space alone stood between markers, and is nothing."""
        if self.state.raw.strip():
            self.emit(Content(self.state.raw))
        self.state.raw, self.state.thought = "", False

    def go(self, step: Step, dropped: str = "") -> None:
        """Takes a step, over white space that its marker brought along."""
        state = self.state
        if not self.region.leave(self):
            self.refuse("" if step.keep else step.marker.text)
            return
        ended, thinking = state.open, self.region.thinking
        self.enter(step.to)
        state.skip = "" if step.keep else step.marker.after
        marker = dropped + ("" if step.keep else step.marker.text)
        if self.region.plain:
            state.raw = kept(state.raw, marker) if state.raw.strip() else ""
            self._unkept()
        elif step.closes and not state.raw.strip():
            state.raw = ""
        elif not (state.open or ended):
            state.raw = kept(state.raw, marker)
            state.thought = state.thought or thinking
            if len(state.raw) > MAX_RAW:
                self.refuse("")

    def enter(self, name: str) -> None:
        region = self._regions[name]
        if self.state.open and not region.inside:
            self.region.close(self)
            if not self.state.written:
                self.emit(Arguments("{}"))
            self.state.open = False
        shared = region.inside and self.region.inside and region.reader_type is self.region.reader_type
        self.crossed = self.crossed or region.thinking != self.region.thinking
        self.state.region, self.region = name, region
        if not shared:
            self.reader = region.load(None, self)
        region.entered(self)

    def refuse(self, text: str) -> None:
        """No call comes of what was kept, nor of `text`: it belongs to the channel that it stood in. If it began with a marker, so
        does that which ends it."""
        raw, thought = self.state.raw + text, self.state.thought
        self.state.raw, self.state.thought, self.state.word = "", False, ""
        if thought:
            self.enter(REFUSED_THOUGHT if raw.strip() else REASONING)
        else:
            self.enter(REFUSED if raw.strip() else CONTENT)
        self.emit(Reasoning(raw) if thought else Content(raw))

    def say(self, text: str) -> None:
        if text:
            self.events.append(Reasoning(text) if self.region.thinking else Content(text))

    def _skipped(self, text: str, at: int) -> int:
        skip = self.state.skip
        if not skip:
            return at
        count = 0
        while count < len(skip) and at + count < len(text) and text[at + count] == skip[count]:
            count += 1
        if not self.region.plain and self.state.raw:
            self.state.raw += text[at : at + count]
        self.state.skip = skip[count:] if at + count == len(text) else ""
        return at + count


def merged(events: Sequence[Event]) -> list[Event]:
    """Neighbouring texts of one kind as one."""
    if len(events) < 2:
        return list(events)
    found: list[Event] = []
    for _, neighbours in groupby(events, type):
        group = list(neighbours)
        first = group[0]
        if isinstance(first, CallStart):
            found += group
        else:
            found.append(type(first)("".join(event.text for event in group if not isinstance(event, CallStart))))
    return found
