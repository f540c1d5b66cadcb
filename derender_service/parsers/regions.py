"""The kinds of regions that grammars are made of: how each reads text, markers, and the end of the output.

A region never sees HTTP, token ids or a model's name: it is declared with the steps out of it, and works on a `Run`.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from pydantic import TypeAdapter

from derender_service.parsers.codecs.gemma_call import GemmaCall
from derender_service.parsers.codecs.json_body import JsonBody
from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.parameter_types import STRING
from derender_service.parsers.codecs.parameters import Parameters
from derender_service.parsers.codecs.reader import Reader
from derender_service.parsers.events import CallStart, Content
from derender_service.parsers.markers import Exits, Marker, Step, common_end
from derender_service.parsers.names import MAX_NAME, is_name
from derender_service.parsers.pieces import Mark
from derender_service.parsers.run import CONTENT, Run

_NOTHING = Exits((), frozenset())


@dataclass(frozen=True, kw_only=True)
class Region:
    """`steps` lead out of it. `channel`: its text is for the user, and `thinking` says in which channel. `plain`: no call has
    begun, so markers before it are not kept. `inside`: within a call whose name is known. `reader_type` is the codec at work;
    neighbouring regions inside a call share its state."""

    name: str
    steps: tuple[Step, ...] = ()
    thinking: bool = False
    plain: bool = False
    exits: Exits = field(default=_NOTHING, repr=False, compare=False)

    channel: ClassVar[bool] = False
    by_id: ClassVar[bool] = False
    """Whether it reads ids, not their text."""
    inside: bool = False
    reader_type: Any = None

    def bound(self, tokens: Set[str]) -> "Region":
        """This region for a tokenizer that has these markers as tokens."""
        return replace(self, exits=Exits(self.steps, tokens))

    def load(self, saved: dict[str, Any] | None, run: Run) -> Any:
        """The codec's state: as it was saved, or anew. Raises pydantic's `ValidationError`."""
        if self.reader_type is None:
            return None
        return self._adapter.validate_python(saved) if saved is not None else self.new_reader(run)

    def dump(self, reader: Any) -> dict[str, Any] | None:
        return None if reader is None else self._adapter.dump_python(reader, mode="json", exclude_defaults=True)

    def new_reader(self, run: Run) -> Any:
        return self.reader_type()

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.reader_type)

    def take(self, run: Run, text: str, at: int) -> int:
        """Reads text from `at` on; returns where it stopped, in whatever region the run is in then."""
        raise NotImplementedError

    def mark(self, run: Run, mark: Mark) -> bool:
        """Reads a marker token. False: the run is in another region now, and that must read it."""
        step = self.exits.by_token.get(mark.text)
        held, run.state.held = run.state.held, ""
        cut = len(held) - common_end(held, step.marker.before) if step else len(held)
        self.literal(run, held[:cut])
        if run.region is not self:
            return False
        if step is None:
            self.literal(run, mark.text)
            return True
        run.go(step, held[cut:])
        return not step.keep

    def literal(self, run: Run, text: str) -> None:
        """Text that is no marker, whatever it looks like."""
        raise NotImplementedError

    def entered(self, run: Run) -> None:
        """The run goes on in this region."""

    def leave(self, run: Run) -> bool:
        """A marker ends the region. False: what was read in it is no part of a call, but content."""
        return True

    def close(self, run: Run) -> None:
        """The call ends, in this region."""

    def finish(self, run: Run) -> None:
        """The output ends, in this region."""
        held, run.state.held = run.state.held, ""
        self.literal(run, held)

    def _search(self, run: Run, text: str, at: int) -> tuple[str, Step | None, int]:
        """The text of this region from `at` on, the step after it, and where reading goes on. What may be a marker is held."""
        found = self.exits.search(text, at)
        if found is None:
            end = max(at, len(text) - self.exits.waiting(text))
            run.state.held = text[end:]
            return text[at:end], None, len(text)
        start, end, step = found
        return text[at:start], step, start if step.keep else end


@dataclass(frozen=True, kw_only=True)
class Channel(Region):
    """Text for the user: content, or with `thinking` reasoning."""

    channel: ClassVar[bool] = True
    plain: bool = True

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        cut = len(body) - common_end(body, step.marker.before) if step else len(body)
        run.say(body[:cut])
        if step is not None:
            run.go(step, body[cut:])
        return end

    def literal(self, run: Run, text: str) -> None:
        run.say(text)


@dataclass(frozen=True, kw_only=True)
class Peek(Region):
    """Looks at what stands next, after white space: takes one of its steps, or goes on in `then`."""

    then: str = CONTENT

    def take(self, run: Run, text: str, at: int) -> int:
        start = after_white_space(text, at)
        if start == len(text) or self.exits.may_begin(text, start):
            run.state.held = text[at:]
            return len(text)
        found = self.exits.match(text, start)
        if found is None:
            self._otherwise(run)
            return at
        end, step = found
        self._step(run, step, text[at:start])
        return start if step.keep else end

    def mark(self, run: Run, mark: Mark) -> bool:
        step = self.exits.by_token.get(mark.text)
        held = run.state.held
        if step is not None and (not held or held.isspace()):
            run.state.held = ""
            self._step(run, step, held)
            return not step.keep
        self._otherwise(run)
        run.text(held)
        return False

    def literal(self, run: Run, text: str) -> None:
        self._otherwise(run)
        run.region.literal(run, text)

    def finish(self, run: Run) -> None:
        held = run.state.held
        if run.state.raw and not held.strip():
            run.state.held = ""
            return
        self._otherwise(run)
        run.text(held)
        run.region.finish(run)

    def _otherwise(self, run: Run) -> None:
        run.enter(self.then)
        if run.region.channel and run.state.raw:
            run.refuse("")

    def _step(self, run: Run, step: Step, white: str) -> None:
        cut = len(white) - common_end(white, step.marker.before)
        run.go(step, white)
        if run.region.channel and not self.thinking:
            run.emit(Content(white[:cut]))


@dataclass(frozen=True, kw_only=True)
class Gap(Region):
    """Between markers: white space, and characters of `junk`, which a malformed call leaves behind. Anything else is content."""

    junk: str = ""

    def take(self, run: Run, text: str, at: int) -> int:
        place = after_white_space(text, at)
        run.state.raw += text[at:place]
        if place == len(text):
            return place
        if found := self.exits.match(text, place):
            end, step = found
            run.go(step)
            return place if step.keep else end
        if self.exits.may_begin(text, place):
            run.state.held = text[place:]
            return len(text)
        if text[place] in self.junk:
            return place + 1
        run.state.spoken = True
        run.refuse("")
        return place

    def literal(self, run: Run, text: str) -> None:
        if text.strip():
            run.state.spoken = True
            run.refuse("")
            run.region.literal(run, text)

    def finish(self, run: Run) -> None:
        held, run.state.held = run.state.held, ""
        run.keep(held)


@dataclass(frozen=True, kw_only=True)
class Name(Region):
    """The name of a function, up to a marker. `read` makes the name and the call's id of what stands there; None if it is none."""

    read: Callable[[str], CallStart | None] = lambda text: CallStart(text) if is_name(text) else None

    def take(self, run: Run, text: str, at: int) -> int:
        if not run.state.word:
            place = after_white_space(text, at)
            run.state.raw += text[at:place]
            at = place
        body, step, end = self._search(run, text, at)
        run.state.word += body
        if step is not None:
            run.go(step)
        elif len(run.state.word) > 2 * MAX_NAME:
            run.refuse(run.state.word)
        return end

    def literal(self, run: Run, text: str) -> None:
        run.state.word += text

    def leave(self, run: Run) -> bool:
        call = self.read(run.state.word.strip())
        if call is None:
            run.state.raw += run.state.word
            return False
        run.state.word = ""
        run.emit(call)
        return True

    def finish(self, run: Run) -> None:
        super().finish(run)
        run.keep(run.state.word)


@dataclass(frozen=True, kw_only=True)
class Dropped(Region):
    """Within a call, text that says nothing."""

    inside: bool = True

    def take(self, run: Run, text: str, at: int) -> int:
        _, step, end = self._search(run, text, at)
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Between(Dropped):
    """Between the parameters of a call. Text there belongs to none of them."""

    reader_type: Any = Parameters

    def new_reader(self, run: Run) -> Parameters:
        return Parameters(tool=run.called)

    def close(self, run: Run) -> None:
        for event in run.reader.close():
            run.emit(event)


@dataclass(frozen=True, kw_only=True)
class Key(Between):
    """The name of a parameter, up to a marker, perhaps in `quotes`."""

    quotes: str = ""

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        run.state.word += body
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        run.state.word += text

    def leave(self, run: Run) -> bool:
        key, run.state.word = run.state.word.strip().strip(self.quotes), ""
        run.reader.key, run.reader.kinds = key, run.types.get(run.reader.tool, {}).get(key, STRING)
        return True

    def finish(self, run: Run) -> None:
        run.state.held = ""


@dataclass(frozen=True, kw_only=True)
class Value(Between):
    """The value of a parameter, up to its end marker and nothing else."""

    def entered(self, run: Run) -> None:
        for event in run.reader.begin():
            run.emit(event)

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        cut = len(body) - common_end(body, step.marker.before) if step else len(body)
        self.literal(run, body[:cut])
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        for event in run.reader.value(text):
            run.emit(event)

    def leave(self, run: Run) -> bool:
        for event in run.reader.end():
            run.emit(event)
        return True


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
class Label(Region):
    """A word before a name that says nothing."""

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        run.keep(body)
        if step is not None:
            run.go(step)
        elif len(run.state.raw) > 4 * MAX_NAME:
            run.refuse("")
        return end

    def literal(self, run: Run, text: str) -> None:
        run.keep(text)


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
