"""What was seen of a request, as it was seen. Times are seconds on one monotonic clock, from the start of the load."""

from dataclasses import dataclass, field
from typing import Literal

from protocol.generate import Timings
from tandem.bench.errors import Failure
from tandem.bench.requests import Request

OutputSource = Literal["ids", "usage", "chunks"]
PromptSource = Literal["ids", "usage"]
HashedThing = Literal["ids", "text"]
StageName = Literal["render", "derender"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Output that came at one moment: `tokens` of it, where their number is known, else 1 for a chunk."""

    at: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A call beside the generation itself."""

    name: StageName
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a whole answer tells at its end. `timings` are the server's own clock's, and None where it tells none. `output_sha256`
    is of what `hashed` names."""

    ended: float
    finish_reason: str | None = None
    request_id: str | None = None
    prompt_tokens: int | None = None
    prompt_source: PromptSource | None = None
    output_tokens: int = 0
    output_source: OutputSource = "ids"
    timings: Timings | None = None
    output_sha256: str | None = None
    hashed: HashedThing | None = None


Seen = Arrival | Stage | Answer


@dataclass(frozen=True, slots=True)
class Slot:
    """When an open loop's request was `due`, and for how long it waited (`held`) because as many ran as may."""

    due: float | None = None
    held: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request from its sending on. It has an `answer`, or a `failure`, or neither: then it was running when the bench was
    stopped. `ended` is when it did, whichever way."""

    request: Request
    slot: Slot
    sent: float
    ended: float
    arrivals: tuple[Arrival, ...] = ()
    stages: tuple[Stage, ...] = ()
    answer: Answer | None = None
    failure: Failure | None = None
    in_flight: int = field(default=1)
    """Requests that ran when this one had been sent, itself included."""
