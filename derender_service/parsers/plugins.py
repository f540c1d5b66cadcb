"""Parsers of other packages, found by the entry-point group `tandem.parsers`.

An entry point names a `ReasoningFormat` or a `ToolFormat`, which joins the declared families, or a `Plugin`: code for a format
that no grammar can say. `docs/parsers.md` shows both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from tokenizers import Tokenizer

from derender_service.parsers.events import Event
from derender_service.parsers.formats import ReasoningFormat, ToolFormat

GROUP = "tandem.parsers"

JsonObject = dict[str, Any]


class DeltaParser(Protocol):
    """Reads one output from its start. It is made anew for every chunk and given the output so far, so it must not depend on
    anything but its arguments: the same calls give the same events."""

    def parse_delta(self, text: str, token_ids: Sequence[int]) -> Sequence[Event]:
        """What these ids add. A chunk of several ids comes as one call, and comes so again in every replay. `text` is theirs with
        special tokens shown; characters whose bytes are not complete come with a later call."""

    def finish(self) -> Sequence[Event]:
        """What is still due: the output has ended."""


class Begin(Protocol):
    def __call__(self, *, prompt_token_ids: Sequence[int] | None, chat_request: JsonObject, tokenizer: Tokenizer) -> JsonObject: ...


class Resume(Protocol):
    def __call__(self, opening: JsonObject, tokenizer: Tokenizer) -> DeltaParser: ...


@dataclass(frozen=True)
class Plugin:
    """`begin` is called once, with the first chunk: it gives what the parser needs to know of the request, as plain JSON (of at
    most `MAX_OPENING` bytes), which travels in the state. `resume` makes a parser from it."""

    begin: Begin
    resume: Resume


MAX_OPENING = 2048


class BrokenPlugin(ValueError):
    """An entry point that names none of the three."""


@cache
def plugins() -> dict[str, ReasoningFormat | ToolFormat | Plugin]:
    """By name. Raises `BrokenPlugin`."""
    found: dict[str, ReasoningFormat | ToolFormat | Plugin] = {}
    for entry in entry_points(group=GROUP):
        value = entry.load()
        if not isinstance(value, ReasoningFormat | ToolFormat | Plugin):
            raise BrokenPlugin(f"entry point {entry.name} of {GROUP} is no ReasoningFormat, ToolFormat or Plugin: {value!r}")
        found[entry.name] = value
    return found
