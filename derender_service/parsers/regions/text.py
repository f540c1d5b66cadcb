"""Text for the user, and the places where it is decided whether text is for the user."""

from dataclasses import dataclass
from typing import ClassVar

from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.kept import MAX_WHITE, kept
from derender_service.parsers.events import Content
from derender_service.parsers.markers import Step, common_end
from derender_service.parsers.pieces import Mark
from derender_service.parsers.regions.base import Region
from derender_service.parsers.run import CONTENT, Run


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
        if start - at > MAX_WHITE:
            self._otherwise(run)
            return at
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
            run.keep(held)
            return
        self._otherwise(run)
        run.text(held)
        run.region.finish(run)

    def _otherwise(self, run: Run) -> None:
        run.enter(self.then)
        if run.region.channel and run.state.raw:
            run.refuse("")

    def _step(self, run: Run, step: Step, white: str) -> None:
        # Where markup is kept, the white space within it is kept with it.
        cut = 0 if run.state.raw.strip() else len(white) - common_end(white, step.marker.before)
        run.go(step, white)
        if run.region.channel and not self.thinking:
            run.emit(Content(white[:cut]))


@dataclass(frozen=True, kw_only=True)
class Gap(Region):
    """Between markers: white space, and characters of `junk`, which a malformed call leaves behind. Anything else is content."""

    junk: str = ""

    def take(self, run: Run, text: str, at: int) -> int:
        place = after_white_space(text, at)
        run.state.raw = kept(run.state.raw, text[at:place])
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
        run.refuse("")
        return place

    def literal(self, run: Run, text: str) -> None:
        if text.strip():
            run.refuse("")
            run.region.literal(run, text)

    def finish(self, run: Run) -> None:
        held, run.state.held = run.state.held, ""
        run.keep(held)
