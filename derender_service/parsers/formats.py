"""What a family declares: how its models write reasoning, and how they write calls."""

from dataclasses import dataclass
from typing import Literal

from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Region

Ids = Literal["derived", "nine", "own"]
"""Ids of calls: derived from the request, as nine letters or digits (Mistral's templates take no others), or the model's own."""


@dataclass(frozen=True)
class ReasoningFormat:
    """`starts` and `ends` are the markers around reasoning; any of each is understood. `label` is a word that follows the start.
    `inner` are tokens that reasoning may hold, and that end no turn of a prompt.
    `wrap` are markers that the template puts around the answer, once reasoning has ended. `assumed`: the family's templates always
    open reasoning in the prompt, so it is open where the prompt is not known.
    """

    name: str
    starts: tuple[Marker, ...]
    ends: tuple[Marker, ...]
    label: Marker | None = None
    inner: tuple[str, ...] = ()
    wrap: tuple[Marker, Marker] | None = None
    assumed: bool = False
    source: str = ""


@dataclass(frozen=True)
class ToolFormat:
    """`entry`: the steps to a call, from content, and from reasoning that the model forgot to end. `loose`: further ones from
    content only. `bare`: how an answer begins that is a call without a marker; looked at where the answer begins, and nowhere
    else. `regions` are the format's own; they lead back to `run.CONTENT`. `typed`: parameters are text, which the tools'
    schemas give types. `source` says where the format's facts are from.
    """

    name: str
    entry: tuple[Step, ...]
    regions: tuple[Region, ...]
    loose: tuple[Step, ...] = ()
    bare: tuple[Step, ...] = ()
    typed: bool = False
    ids: Ids = "derived"
    source: str = ""
