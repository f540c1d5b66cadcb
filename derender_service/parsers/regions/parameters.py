"""Parameters that are written one by one, each between markers."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.kept import MAX_WHITE
from derender_service.parsers.codecs.parameter_types import STRING
from derender_service.parsers.codecs.parameters import Parameters
from derender_service.parsers.markers import Exits, Marker, Step, common_end
from derender_service.parsers.pieces import Mark
from derender_service.parsers.regions.base import Region
from derender_service.parsers.run import Run


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
    whole: ClassVar[bool] = True

    def new_reader(self, run: Run) -> Parameters:
        return Parameters(tool=run.called)

    def close(self, run: Run) -> None:
        for event in run.reader.close():
            run.emit(event)


_LONGEST_KEY = 1_024


@dataclass(frozen=True, kw_only=True)
class Key(Between):
    """The name of a parameter, up to a marker, perhaps in `quotes`. What is longer than any name is cut."""

    quotes: str = ""
    whole: ClassVar[bool] = False

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        self.literal(run, body)
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        run.state.word += text[: max(0, _LONGEST_KEY - len(run.state.word))]

    def leave(self, run: Run) -> bool:
        key, run.state.word = run.state.word.strip().strip(self.quotes), ""
        run.reader.key, run.reader.kinds = key, run.types.get(run.reader.tool, {}).get(key, STRING)
        return True

    def finish(self, run: Run) -> None:
        run.state.held = ""


@dataclass(frozen=True, kw_only=True)
class Value(Between):
    """The value of a parameter, up to an end marker and nothing else.

    Where that marker is text, a value may hold it too (a file that tells of this very format): it is the end only where one of
    `followed` follows, after white space.
    """

    followed: Mapping[Marker, tuple[Marker, ...]] = field(default_factory=dict)
    whole: ClassVar[bool] = False
    followers: Mapping[str, Exits] = field(default_factory=dict, repr=False, compare=False)

    def bound(self, tokens: Set[str]) -> "Value":
        followers = {
            end.text: Exits((Step(marker, "") for marker in after), tokens)
            for end, after in self.followed.items()
            if end.text not in tokens
        }
        return replace(self, exits=Exits(self.steps, tokens), followers=followers)

    def entered(self, run: Run) -> None:
        for event in run.reader.begin():
            run.emit(event)

    def take(self, run: Run, text: str, at: int) -> int:
        place = at
        while found := self.exits.search(text, place):
            start, end, step = found
            cut = start - common_end(text[max(at, start - len(step.marker.before)) : start], step.marker.before)
            ends = self._ends(step, text, end)
            if ends is None:
                self.literal(run, text[at:cut])
                run.state.held = text[cut:]
                return len(text)
            if ends:
                self.literal(run, text[at:cut])
                run.go(step)
                return end
            place = end
        cut = max(place, len(text) - self.exits.waiting(text))
        self.literal(run, text[at:cut])
        run.state.held = text[cut:]
        return len(text)

    def mark(self, run: Run, mark: Mark) -> bool:
        held = run.state.held
        found = self.exits.search(held) if held else None
        if found is None:
            return super().mark(run, mark)
        _, end, step = found
        follow = self.followers.get(step.marker.text)
        if follow is None or mark.text not in follow.by_token or held[end:].strip():
            return super().mark(run, mark)
        run.state.held = ""
        run.go(step)
        return False

    def literal(self, run: Run, text: str) -> None:
        for event in run.reader.value(text):
            run.emit(event)

    def leave(self, run: Run) -> bool:
        for event in run.reader.end():
            run.emit(event)
        return True

    def end(self, run: Run) -> None:
        found = self.exits.search(run.state.held)
        if found is not None:
            _, end, step = found
            held, run.state.held = run.state.held, ""
            run.go(step)
            run.text(held[end:])

    def finish(self, run: Run) -> None:
        # Whether this would have been the value's end or part of it, nothing tells: the arguments end before it.
        run.state.held = ""

    def _ends(self, step: Step, text: str, at: int) -> bool | None:
        """Whether the marker before `at` ends the value; None while that is not decided."""
        follow = self.followers.get(step.marker.text)
        if follow is None:
            return True
        place = after_white_space(text, at)
        if place - at > MAX_WHITE:
            return True
        if place == len(text) or follow.may_begin(text, place):
            return None
        return follow.match(text, place) is not None
