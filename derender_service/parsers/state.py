"""Where a parser stands between two pieces: the checkpoint, plain JSON."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter


@dataclass
class State:
    """`region` is the part of the grammar that the next piece is read in.

    `held`: text that may be the beginning of a marker. `skip`: white space that the marker just read may bring along. `raw`:
    text and markers since the last call, while none has come of them; `thought` says that it began within reasoning.
    `word`: a name or key of which the end has not come. `calls`: how many have begun. `open`: the last one has not ended;
    `written`: it has arguments. `reader`: the fields of the codec that is at work. `header`: ids of a harmony header that has
    not ended.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    region: Annotated[str, Field(max_length=64)]
    held: str = ""
    skip: Annotated[str, Field(max_length=64)] = ""
    raw: str = ""
    thought: bool = False
    word: str = ""
    calls: Annotated[int, Field(ge=0, le=2**31)] = 0
    open: bool = False
    written: bool = False
    reader: dict[str, Any] | None = None
    header: tuple[Annotated[int, Field(ge=0, le=2**31)], ...] = ()

    def dump(self) -> dict[str, Any]:
        """As JSON, without what has its default."""
        return _ADAPTER.dump_python(self, mode="json", exclude_defaults=True)  # type: ignore[no-any-return]

    @staticmethod
    def load(value: Any) -> "State":
        """Raises pydantic's `ValidationError`."""
        return _ADAPTER.validate_python(value)


_ADAPTER = TypeAdapter(State)
