"""Where a parser stands between two pieces: the checkpoint, plain JSON."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from derender_service.parsers.codecs.saved import Saved, load


@dataclass
class State(Saved):
    """`region` is the part of the grammar that the next piece is read in.

    `held`: text that may be the beginning of a marker. `skip`: white space that the marker just read may bring along. `raw`:
    text and markers since the last call, while none has come of them; `thought` says that it began within reasoning.
    `word`: a name or key of which the end has not come. `open`: the last call has not ended;
    `written`: it has arguments. `reader`: the fields of the codec that is at work. `header`: ids of a harmony header that has
    not ended.
    """

    region: Annotated[str, Field(max_length=64)]
    held: str = ""
    skip: Annotated[str, Field(max_length=64)] = ""
    raw: str = ""
    thought: bool = False
    word: str = ""
    open: bool = False
    written: bool = False
    reader: dict[str, Any] | None = None
    header: tuple[Annotated[int, Field(ge=0, le=2**31)], ...] = ()

    def dump(self) -> dict[str, Any]:
        """As JSON, without the fields that have their defaults. What the codec saved is JSON already."""
        reader, self.reader = self.reader, None
        found = super().dump()
        self.reader = reader
        return found if reader is None else found | {"reader": reader}

    def copied(self) -> "State":
        found = State.__new__(State)
        vars(found).update(vars(self))
        return found

    @staticmethod
    def load(value: Any) -> "State":
        """Raises pydantic's `ValidationError`."""
        state: State = load(State, value)
        return state
