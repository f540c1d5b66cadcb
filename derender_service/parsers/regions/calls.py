"""Calls, or arguments of calls, that a codec reads by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from derender_service.parsers.codecs.gemma_call import GemmaCall
from derender_service.parsers.codecs.json_body import JsonBody
from derender_service.parsers.codecs.reader import Reader
from derender_service.parsers.events import CallStart
from derender_service.parsers.markers import Marker
from derender_service.parsers.pieces import Mark
from derender_service.parsers.regions.base import Region
from derender_service.parsers.run import Run


@dataclass(frozen=True, kw_only=True)
class Calls(Region):
    """One or more calls that a codec reads by itself; after the last the run goes on in `then`. `always`: its markers end it even
    within a string."""

    then: str
    options: Mapping[str, Any] = field(default_factory=dict)
    always: bool = False

    def new_reader(self, run: Run) -> Reader:
        reader: Reader = self.reader_type(**self.options)
        return reader

    def take(self, run: Run, text: str, at: int) -> int:
        stops = self.exits.first_characters
        reader: Reader = run.reader
        while at < len(text):
            events, at = reader.take(text, at, stops)
            self._emit(run, events)
            if reader.done:
                run.enter(self.then)
                return at
            if reader.refused:
                return self._refuse(run, at)
            if at == len(text):
                break
            if found := self.exits.match(text, at):
                end, step = found
                self._cut(run)
                run.go(step)
                return at if step.keep else end
            if self.exits.may_begin(text, at):
                run.state.held = text[at:]
                return len(text)
            at = self._pass(run, text, at)
            if reader.refused:
                return self._refuse(run, at)
        return len(text)

    def mark(self, run: Run, mark: Mark) -> bool:
        reader: Reader = run.reader
        held, run.state.held = run.state.held, ""
        self.literal(run, held)
        if run.region is not self:
            return False
        step = self.exits.by_token.get(mark.text) if self.always or not reader.quoted else None
        if step is None:
            self.literal(run, mark.text)
            return True
        self._cut(run)
        run.go(step)
        return not step.keep

    def literal(self, run: Run, text: str) -> None:
        at = 0
        while at < len(text) and run.region is self:
            events, at = run.reader.take(text, at)
            self._emit(run, events)
            if run.reader.done:
                run.enter(self.then)
            elif at < len(text) and not run.reader.refused:
                at = run.reader.skip(text, at)
            if run.reader is not None and run.reader.refused:
                at = self._refuse(run, at)
        if at < len(text):
            run.region.literal(run, text[at:])

    def finish(self, run: Run) -> None:
        super().finish(run)
        if run.region is self:
            self._cut(run)

    def _emit(self, run: Run, events: list[Any]) -> None:
        for event in events:
            run.emit(event)

    def _pass(self, run: Run, text: str, at: int) -> int:
        """Reads over one character that might have begun a marker."""
        reader: Reader = run.reader
        events, used = reader.take(text[at], 0)
        self._emit(run, events)
        return at + used if used else reader.skip(text, at)

    def _refuse(self, run: Run, at: int) -> int:
        run.keep(run.reader.raw)
        run.refuse("")
        return at

    def _cut(self, run: Run) -> None:
        """The call ends before the codec says so: by a marker, or with the output."""
        self._emit(run, run.reader.finish())
        if run.reader.raw:
            run.keep(run.reader.raw)


@dataclass(frozen=True, kw_only=True)
class Body(Calls):
    """The arguments of a call whose name is known."""

    inside: bool = True
    reader_type: Any = JsonBody


@dataclass(frozen=True, kw_only=True)
class NamedBody(Body):
    """The arguments of the call that the request demanded: nothing else is written, not even the name."""

    def entered(self, run: Run) -> None:
        run.emit(CallStart(run.named))


@dataclass(frozen=True, kw_only=True)
class Delimited(Calls):
    """A call whose strings stand between delimiters, which may be tokens."""

    delimiter: Marker
    reader_type: Any = GemmaCall

    def load(self, saved: dict[str, Any] | None, run: Run) -> GemmaCall:
        reader: GemmaCall = super().load(saved, run)
        # What the grammar says is not taken from a state, which comes from a client.
        reader.delimiter, reader.spelled = self.delimiter.text, self.delimiter.text not in run.tokens
        return reader

    def mark(self, run: Run, mark: Mark) -> bool:
        if mark.text != self.delimiter.text:
            return super().mark(run, mark)
        held, run.state.held = run.state.held, ""
        self.literal(run, held)
        if run.region is not self:
            return False
        self._emit(run, run.reader.delimit())
        if run.reader.refused:
            run.reader.raw += mark.text
            self._refuse(run, 0)
        return True
