"""One request on its way through an engine: its choices, its clock, and the promise that the last `done` sums it up."""

from dataclasses import replace

from generate_worker.engine.base import DoneStep, EngineRequest, Generation, Score, Step, Summary
from generate_worker.engine.sequence import Sequence
from protocol.generate import FinishReason, Timings


class Job:
    """Times are in seconds of one monotonic clock. `cancelled` asks the engine to end the job at the next step's end."""

    __slots__ = ("arrival", "cancelled", "enqueued", "first_token", "generation", "request", "sequences", "started")

    def __init__(self, generation: Generation, arrival: int, now: float) -> None:
        self.generation = generation
        self.request: EngineRequest = generation.request
        self.sequences = [Sequence(self.request, index) for index in range(self.request.params.n)]
        self.arrival = arrival
        self.enqueued = now
        self.started: float | None = None
        self.first_token: float | None = None
        self.cancelled = False

    @property
    def finished(self) -> bool:
        return all(sequence.finished for sequence in self.sequences)

    def begin(self, now: float) -> None:
        """Its first prefill starts."""
        if self.started is None:
            self.started = now

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
        completion = sum(len(sequence.output_ids) for sequence in self.sequences)
        sampled = completion - len(self.sequences) * len(self.request.resumed_ids)
        queue_ms, execution_ms = _ms(started - self.enqueued), _ms(now - started)
        timings = Timings(
            queue_ms=queue_ms,
            ttft_ms=None if self.first_token is None else _ms(self.first_token - self.enqueued),
            execution_ms=execution_ms,
            total_ms=queue_ms + execution_ms,
            tokens_per_s=round(sampled / (now - started), 3) if now > started else 0.0,
        )
        return Summary(completion, 0 if self.started is None else len(self.request.prompt_ids), timings)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
