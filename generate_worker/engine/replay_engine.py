"""An engine that plays ids back at a given rate: tests and load tests then need neither a model nor torch.

Everything around the ids is as in any engine: admission, the queue and its bound, slots, stop ids, length, resuming, aborts.
"""

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, ValidationError

from generate_worker.engine.base import Candidate, Engine, EngineRequest, Generation, Observer, Score, Stats, Step, TokenStep
from generate_worker.engine.job import Job
from generate_worker.engine.scheduler import Scheduler
from generate_worker.engine.sequence import Sequence
from model_profile.errors import ProfileError
from protocol.base import Closed, TokenId
from protocol.errors import InternalError, Overloaded, TandemError
from protocol.generate import FinishReason

log = logging.getLogger("tandem.engine")


class ScriptLine(Closed):
    """One output. `finish_reason` says how it ends where no stop id of the request has ended it before: `stop` makes its last id
    the stopping token, `length` and `abort` end after it."""

    token_ids: list[TokenId]
    finish_reason: Literal["stop", "length", "abort"] = "length"


@dataclass(frozen=True, slots=True)
class Output:
    """What is played for one choice: ids from its resumed length on, then the end. `stop_at` makes the id at that index stop it."""

    token_ids: Iterator[int]
    then: FinishReason = FinishReason.LENGTH
    stop_at: int | None = None


class Source(Protocol):
    """Where the ids come from. Another source (one that fails at a planned point, say) plugs in here."""

    def output(self, request: EngineRequest, choice: int) -> Output: ...


@dataclass(slots=True)
class Script:
    """Lines in turn, one a choice, from the first again after the last. A resumed request goes on in the line it began with."""

    lines: list[ScriptLine]
    _turn: int = 0

    @classmethod
    def read(cls, path: Path) -> "Script":
        """From a file of JSON lines. Raises `ProfileError`."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"the replay script {path} cannot be read: {error}") from error
        lines = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                try:
                    lines.append(ScriptLine.model_validate(json.loads(line)))
                except (ValidationError, json.JSONDecodeError) as error:
                    reason = str(error).replace("\n", " ")
                    raise ProfileError(
                        f"the replay script {path}, line {number}, is no {{'token_ids': [...]}}: {reason}"
                    ) from error
        if not lines:
            raise ProfileError(f"the replay script {path} has no lines")
        return cls(lines)

    def output(self, request: EngineRequest, choice: int) -> Output:
        done = list(request.resumed_ids)
        begun = (line for line in self.lines if done and line.token_ids[: len(done)] == done)
        line = next(begun, None)
        if line is None:
            line = self.lines[self._turn % len(self.lines)]
            self._turn += 1
        last = len(line.token_ids) - 1
        return Output(
            iter(line.token_ids[len(done) :]), FinishReason(line.finish_reason), last if line.finish_reason == "stop" else None
        )


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Endless ids below `vocab_size` that depend on seed, choice and position alone, and are never among `avoided`."""

    vocab_size: int
    avoided: frozenset[int] = frozenset()

    def output(self, request: EngineRequest, choice: int) -> Output:
        return Output(self._ids(request, choice))

    def _ids(self, request: EngineRequest, choice: int) -> Iterator[int]:
        avoided = self.avoided | request.stop_ids
        for place in itertools.count(len(request.resumed_ids)):
            draws = (_scramble(request.seed, choice, place, attempt) % self.vocab_size for attempt in itertools.count())
            yield next((token_id for token_id in itertools.islice(draws, 64) if token_id not in avoided), 0)


def _scramble(*numbers: int) -> int:
    x = 0
    for number in numbers:
        x = (x ^ (number & (2**64 - 1))) * 0x9E3779B97F4A7C15 % 2**64
        x ^= x >> 29
    return x


@dataclass(frozen=True, slots=True)
class Pace:
    """`tokens_per_second` of one choice (0: as fast as it goes), `chunk` ids at a time."""

    tokens_per_second: Annotated[float, Field(ge=0)] = 0.0
    chunk: Annotated[int, Field(ge=1)] = 1

    def due(self, begun: float, tokens: int) -> float:
        return begun + tokens / self.tokens_per_second if self.tokens_per_second else 0.0


@dataclass(slots=True, eq=False)
class ReplayEngine(Engine):
    """Runs wholly on the event loop, one task a request: there is no work in it that could block."""

    source: Source
    pace: Pace
    scheduler: Scheduler
    observer: Observer = field(default_factory=Observer)
    jobs: dict[Generation, Job] = field(default_factory=dict)
    tasks: dict[Job, asyncio.Task[None]] = field(default_factory=dict)
    playing: set[Sequence] = field(default_factory=set)
    arrivals: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        self.alive = True

    def submit(self, request: EngineRequest) -> Generation:
        if not self.alive:
            raise Overloaded("this worker's engine is not running", retry_after=5)
        if self.scheduler.full:
            raise Overloaded(f"{len(self.scheduler.jobs_waiting)} requests are waiting already; try again later, or elsewhere")
        generation = Generation(request, self._abandon)
        arrival = next(self.arrivals)
        job = Job(generation, arrival, time.monotonic(), self.scheduler.salt(request, arrival))
        self.jobs[generation] = job
        if job.sequences[0].exhausted:
            self._emit(job, job.cut(FinishReason.LENGTH, time.monotonic()))
        else:
            self.scheduler.add(job)
            self._admit()
        return generation

    def abort(self, request_id: str) -> int:
        named = [job for generation, job in self.jobs.items() if generation.request.request_id == request_id]
        for job in named:
            self._emit(job, job.cut(FinishReason.ABORT, time.monotonic()))
        return len(named)

    def fail_all(self, error: TandemError) -> None:
        for job in list(self.jobs.values()):
            self._fail(job, error)

    def stats(self) -> Stats:
        return self.scheduler.stats()

    def close(self) -> None:
        self.alive = False

    def _abandon(self, generation: Generation) -> None:
        job = self.jobs.get(generation)
        if job is not None:
            self._emit(job, job.cut(FinishReason.ABORT, time.monotonic()))

    def _admit(self) -> None:
        """Those that enter are played from here on. (Their choices enter one step after the first, whose prompt they share.)"""
        while entered := [work for work in self.scheduler.plan(time.monotonic()) if work.sequence not in self.playing]:
            for work in entered:
                self.scheduler.computed(work)
                self.playing.add(work.sequence)
                job = work.sequence.job
                if job.wants_prompt_scores:
                    wanted = job.request.params.prompt_logprobs
                    job.prompt_scores[1:] = [_certain(wanted, token_id) for token_id in job.request.prompt_ids[1:]]
        for job in self.scheduler.jobs:
            if job not in self.tasks and all(sequence in self.playing for sequence in job.sequences):
                outputs = [self.source.output(job.request, sequence.index) for sequence in job.sequences]
                self.tasks[job] = asyncio.get_running_loop().create_task(self._play(job, outputs))

    async def _play(self, job: Job, outputs: list[Output]) -> None:
        """Tells the ids of all open choices, a chunk of each in turn, at the pace."""
        try:
            told = 0
            begun = time.monotonic()
            while not job.finished:
                told += self.pace.chunk
                await asyncio.sleep(max(0.0, self.pace.due(begun, told) - time.monotonic()))
                for sequence, output in zip(job.sequences, outputs, strict=True):
                    if not sequence.finished:
                        self._emit(job, self._chunk(job, sequence, output))
        except TandemError as error:
            self._fail(job, error)
        except Exception as error:  # as in every engine: a failed step becomes the request's error
            log.exception("a replay failed")
            self._fail(
                job, InternalError(f"the engine failed at this request: {type(error).__name__}; the worker's log has the details")
            )

    def _chunk(self, job: Job, sequence: Sequence, output: Output) -> list[Step]:
        now = time.monotonic()
        steps: list[Step] = []
        for _ in range(self.pace.chunk):
            if sequence.finished:
                break
            token_id = next(output.token_ids, None)
            if token_id is None:
                steps += job.cut(output.then, now, sequence)
            else:
                stops = output.stop_at == sequence.output_length
                steps += job.accept(sequence, token_id, _certain(job.request.params.logprobs, token_id), now, stops=stops)
        return merged(steps)

    def _emit(self, job: Job, steps: list[Step]) -> None:
        job.generation.deliver(steps)
        self.observer.steps(steps)
        if any(sequence.finished for sequence in job.sequences):
            self.scheduler.settle()
        if job.finished:
            self._forget(job)

    def _fail(self, job: Job, error: TandemError) -> None:
        job.generation.fail(error)
        self.observer.failed()
        self._forget(job)

    def _forget(self, job: Job) -> None:
        self.jobs.pop(job.generation, None)
        self.scheduler.drop(job)
        self.playing.difference_update(job.sequences)
        task = self.tasks.pop(job, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._admit()


def merged(steps: list[Step]) -> list[Step]:
    """Neighbouring token steps of one choice as one."""
    out: list[Step] = []
    for step in steps:
        last = out[-1] if out else None
        if isinstance(step, TokenStep) and isinstance(last, TokenStep) and last.choice == step.choice:
            joined = last.token_ids + step.token_ids
            out[-1] = TokenStep(last.choice, last.token_index, joined, last.scores + step.scores, last.gap)
        else:
            out.append(step)
    return out


def _certain(wanted: int | None, token_id: int) -> Score | None:
    """A replayed id has no distribution: it was certain. `wanted`: how many candidates, None for no score."""
    if wanted is None:
        return None
    chosen = Candidate(token_id, 0.0, 1)
    return Score(chosen, (chosen,) if wanted else ())
