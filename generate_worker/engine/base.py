"""The engine interface: what a worker asks of whatever makes its tokens."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import TandemError
from protocol.generate import FinishReason, Timings
from protocol.sampling import SamplingParams


class Grammar(Protocol):
    """What may come next in one choice. Called in the engine's thread."""

    def allowed(self) -> bytes | None:
        """A bit for each token id, the lowest bit of the first byte being that of id 0; ids beyond the last are not allowed. None
        where all are."""

    def advance(self, token_id: int) -> None:
        """The choice goes on with this id, which was allowed."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """An admitted request: every default filled in, every bound checked.

    `max_tokens` and `params.min_tokens` count the ids of one choice, those in `resumed_ids` included. `stop_ids` holds all ids that
    end a choice; `primary_eos` is the one whose `stop_reason` is null (None where eos is ignored). `late_ids` must not come before
    `min_tokens`: as in vLLM, those that stop and every eos, ignored or not. `grammar` makes a choice's own reader of the structure
    that its output must have, `resumed_ids` read already.
    """

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    seed: int
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    late_ids: frozenset[int] = frozenset()
    primary_eos: int | None = None
    resumed_ids: tuple[int, ...] = ()
    priority: int = 0
    cache_salt: str | None = None
    grammar: Callable[[], Grammar] | None = None


class ConnectionCut(TandemError):
    """The answer ends here, without a word: what an engine raises that plays a network's failure."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could stand at a position. `rank` counts from 1 in the raw distribution."""

    token_id: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class Score:
    """The sampled token's own log probability, and the best candidates at its position, in rank order."""

    chosen: Candidate
    best: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known when the last choice of a request has ended. Of its prompt, `cached_tokens` were found computed and
    `computed_prompt_tokens` were computed for it; both are 0 if it never left the queue. `prompt_scores`, where asked for: one a
    prompt token, None for the first."""

    completion_tokens: int
    cached_tokens: int
    computed_prompt_tokens: int
    timings: Timings
    prompt_scores: tuple[Score | None, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenStep:
    """Ids that were sampled and did not stop their choice. `gap` is the time since the choice's previous token, in seconds."""

    choice: int
    token_index: int
    token_ids: tuple[int, ...]
    scores: tuple[Score, ...] = ()
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class DoneStep:
    """The end of a choice: `token_ids` is the stopping token or empty. The request's last one carries the `summary`."""

    choice: int
    token_index: int
    token_ids: tuple[int, ...]
    output_tokens: int
    finish_reason: FinishReason
    stop_reason: int | None = None
    scores: tuple[Score, ...] = ()
    gap: float | None = None
    summary: Summary | None = None


Step = TokenStep | DoneStep


@dataclass(frozen=True, slots=True)
class Stats:
    """A moment's load. Slots are choices that run at once, of `running` requests; `waiting` requests have not begun. KV tokens are
    positions of the cache: held by choices that run, left there by others to be found again, and all. `preemptions` counts from the
    start on. `batch_invariant`: whether what comes out was seen not to depend, to the last bit, on who shares a step."""

    running: int
    waiting: int
    slots_used: int
    slots_total: int
    kv_tokens_used: int
    kv_tokens_cached: int
    kv_tokens_total: int
    preemptions: int = 0
    batch_invariant: bool = True


class Generation:
    """A request's steps, as an async iterator of batches. Lives on the event loop; `close` ends the work wherever it stands.

    Iterating raises the `TandemError` that the request failed with. `next` may be cancelled at any time without losing a step.
    """

    def __init__(self, request: EngineRequest, abandon: Callable[["Generation"], None]) -> None:
        self.request = request
        self._abandon = abandon
        self._steps: deque[Step] = deque()
        self._arrived = asyncio.Event()
        self._error: TandemError | None = None
        self.failed = False
        self.ended = False

    def deliver(self, steps: list[Step]) -> None:
        if self.ended:
            return
        self._steps.extend(steps)
        self.ended = any(isinstance(step, DoneStep) and step.summary is not None for step in steps)
        self._arrived.set()

    def fail(self, error: TandemError) -> None:
        if self.ended:
            return
        self._error, self.failed, self.ended = error, True, True
        self._arrived.set()

    async def next(self) -> list[Step]:
        """All steps that have arrived since the last call, waiting for one; empty once the request has ended."""
        while not self._steps:
            if self._error is not None:
                raise self._error
            if self.ended:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        steps = list(self._steps)
        self._steps.clear()
        return steps

    def close(self) -> None:
        """Gives the request up if it has not ended. Idempotent."""
        if not self.ended:
            self.ended = True
            self._abandon(self)


class Engine(ABC):
    """All methods are called on the event loop, and none of them blocks but `load` and `close`."""

    alive: bool = True

    @abstractmethod
    def start(self) -> None:
        """Begins to serve, on the running event loop."""

    @abstractmethod
    def submit(self, request: EngineRequest) -> Generation:
        """Queues a request. Raises `Overloaded` when the queue is full."""

    @abstractmethod
    def abort(self, request_id: str) -> int:
        """Ends all requests of that id with `abort`; returns how many there were."""

    @abstractmethod
    def fail_all(self, error: TandemError) -> None:
        """Ends every open request with `error`, at once."""

    @abstractmethod
    def stats(self) -> Stats: ...

    @abstractmethod
    def close(self) -> None:
        """Stops serving and waits for what runs. Called off the event loop."""


StepObserver = Callable[[list[Step]], None]
FailureObserver = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Observer:
    """Told of every step and every failure as it is delivered, on the event loop."""

    steps: StepObserver = lambda steps: None
    failed: FailureObserver = lambda: None
