"""What every region is, and does unless it says otherwise."""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from derender_service.parsers.codecs.saved import load
from derender_service.parsers.markers import Exits, Step, common_end
from derender_service.parsers.pieces import Mark
from derender_service.parsers.run import Run

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
    whole: ClassVar[bool] = False
    """Whether a call lacks no more than its end marker here."""
    inside: bool = False
    reader_type: Any = None

    def bound(self, tokens: Set[str]) -> "Region":
        """This region for a tokenizer that has these markers as tokens."""
        return replace(self, exits=Exits(self.steps, tokens))

    def load(self, saved: dict[str, Any] | None, run: Run) -> Any:
        """The codec's state: as it was saved, or anew. Raises pydantic's `ValidationError`."""
        if self.reader_type is None:
            return None
        return load(self.reader_type, saved) if saved is not None else self.new_reader(run)

    def new_reader(self, run: Run) -> Any:
        return self.reader_type()

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

    def end(self, run: Run) -> None:
        """The model ends the output in this region: what was held back to see what follows is a marker, since nothing does."""

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
