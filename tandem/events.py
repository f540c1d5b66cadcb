"""What a stream tells, as values."""

from dataclasses import dataclass

from protocol.generate import Timings
from protocol.usage import Usage
from tandem.checks import CheckFailure, CheckResult


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments` is its own text: JSON, unless it was cut off."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A segment of the text, as the chunking cut it, after its checks."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """More of the reasoning, as it came."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class CheckEvent:
    """What the checks said of a segment, or (`final`) of the whole text."""

    segment: str
    results: tuple[CheckResult, ...]
    final: bool = False


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The answer's natural end."""

    finish_reason: str
    usage: Usage | None
    timings: Timings | None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The stream has failed; whoever iterates is raised the error next."""

    error: Exception


@dataclass(frozen=True, slots=True)
class CompletedEvent:
    """Nothing comes any more, and the request's resources are free: once a stream, last, however it ended."""

    stream_id: str | None
    full_text: str
    completed_normally: bool
    failure_reason: str | None
    check_failures: tuple[CheckFailure, ...]


StreamEvent = (
    TextEvent
    | ReasoningEvent
    | ToolCallStart
    | ToolCallArguments
    | ToolCallEnd
    | CheckEvent
    | DoneEvent
    | ErrorEvent
    | CompletedEvent
)
