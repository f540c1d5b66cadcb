"""One request on its way through an engine: its choices, its clock, and the promise that the last `done` sums it up."""

from dataclasses import replace

from generate_worker.engine.base import DoneStep, EngineRequest, Generation, Score, Step, Summary
from generate_worker.engine.sequence import Sequence
from protocol.generate import FinishReason, Timings


class Job:
    """Times are in seconds of one monotonic clock. `cancelled` asks the engine to end the job at the next step's end.

    `cached_tokens` are prompt tokens that were found computed when it began. `prompt_scores` are filled, where they are asked for,
    as the first choice's prompt is computed: one a position, none for the first.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "cancelled",
        "enqueued",
        "first_token",
        "generation",
        "prompt_scores",
        "request",
        "sequences",
        "started",
    )

    def __init__(self, generation: Generation, arrival: int, now: float, salt: str = "") -> None:
        self.generation = generation
        self.request: EngineRequest = generation.request
        self.arrival = arrival
        self.sequences = [Sequence(self, index, salt) for index in range(self.request.params.n)]
        self.enqueued = now
        self.started: float | None = None
        self.first_token: float | None = None
        self.cached_tokens = 0
        self.prompt_scores: list[Score | None] = [None] * len(self.request.prompt_ids) if self.wants_prompt_scores else []
        self.cancelled = False

    @property
    def wants_prompt_scores(self) -> bool:
        return self.request.params.prompt_logprobs is not None

    @property
    def finished(self) -> bool:
        return all(sequence.finished for sequence in self.sequences)

    def begin(self, sequence: Sequence, now: float) -> None:
        """A choice is about to be computed. The first time, what it has found is the request's."""
        if self.started is None:
            self.started = now
            self.cached_tokens = min(sequence.computed, len(self.request.prompt_ids))

    def may_reuse(self, sequence: Sequence) -> bool:
        """Whether it may take blocks that are computed: scores of a prompt's tokens come only with computing it."""
        return not (self.wants_prompt_scores and sequence.index == 0 and None in self.prompt_scores[1:])

    def accept(self, sequence: Sequence, token_id: int, score: Score | None, now: float, *, stops: bool = False) -> list[Step]:
        if self.first_token is None:
            self.first_token = now
        return self._summed_up(sequence.accept(token_id, score, now, stops=stops), now)

    def cut(self, reason: FinishReason, now: float, sequence: Sequence | None = None) -> list[Step]:
        """Ends one choice, or all that are open, where they stand."""
        chosen = self.sequences if sequence is None else [sequence]
        return self._summed_up([one.cut(reason) for one in chosen if not one.finished], now)

    def _summed_up(self, steps: list[Step], now: float) -> list[Step]:
        if steps and self.finished:
            last = steps[-1]
            assert isinstance(last, DoneStep)
            steps[-1] = replace(last, summary=self._summary(now))
        return steps

    def _summary(self, now: float) -> Summary:
        started = now if self.started is None else self.started
        completion = sum(sequence.output_length for sequence in self.sequences)
        sampled = completion - len(self.sequences) * len(self.request.resumed_ids)
        queue_ms, execution_ms = _ms(started - self.enqueued), _ms(now - started)
        timings = Timings(
            queue_ms=queue_ms,
            ttft_ms=None if self.first_token is None else _ms(self.first_token - self.enqueued),
            execution_ms=execution_ms,
            total_ms=queue_ms + execution_ms,
            tokens_per_s=round(sampled / (now - started), 3) if now > started else 0.0,
        )
        return Summary(
            completion_tokens=completion,
            cached_tokens=self.cached_tokens,
            computed_prompt_tokens=0 if self.started is None else len(self.request.prompt_ids) - self.cached_tokens,
            timings=timings,
            prompt_scores=tuple(self.prompt_scores) if self.started is not None else (),
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
