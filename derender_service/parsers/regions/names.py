"""The name of a function, and what may stand before it."""

from collections.abc import Callable
from dataclasses import dataclass

from derender_service.parsers.codecs.json_value import after_white_space
from derender_service.parsers.codecs.kept import kept
from derender_service.parsers.events import CallStart
from derender_service.parsers.names import MAX_NAME, is_name
from derender_service.parsers.regions.base import Region
from derender_service.parsers.run import Run

_LONGEST = 4 * MAX_NAME
"""Characters that may stand where a name is due. More is no name, and is not waited for."""


@dataclass(frozen=True, kw_only=True)
class Label(Region):
    """A word before a name that says nothing, up to a marker."""

    def take(self, run: Run, text: str, at: int) -> int:
        if not run.state.word:
            place = after_white_space(text, at)
            run.state.raw = kept(run.state.raw, text[at:place])
            at = place
        room = max(0, _LONGEST - len(run.state.word))
        body, step, end = self._search(run, text, at)
        run.state.word += body[:room]
        if len(body) > room:
            run.state.held = ""
            run.refuse(run.state.word)
            return at + room
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        run.state.word += text
        if len(run.state.word) > _LONGEST:
            run.refuse(run.state.word)

    def leave(self, run: Run) -> bool:
        run.keep(run.state.word)
        run.state.word = ""
        return True

    def finish(self, run: Run) -> None:
        super().finish(run)
        run.keep(run.state.word)


@dataclass(frozen=True, kw_only=True)
class Name(Label):
    """The name of a function, up to a marker. `read` makes the name and the call's id of what stands there; None if it is none."""

    read: Callable[[str], CallStart | None] = lambda text: CallStart(text) if is_name(text) else None

    def leave(self, run: Run) -> bool:
        call = self.read(run.state.word.strip())
        if call is None:
            run.keep(run.state.word)
            run.state.word = ""
            return False
        run.state.word = ""
        run.emit(call)
        return True
