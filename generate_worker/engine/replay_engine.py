"""An engine that plays ids back at a given rate: tests and load tests then need neither a model nor torch.

Everything around the ids is as in any engine: admission, the queue and its bound, slots, stop ids, length, resuming, aborts.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from generate_worker.engine.base import (
    Candidate,
    ConnectionCut,
    Engine,
    EngineRequest,
    Generation,
    Observer,
    Score,
    Stats,
    Step,
    TokenStep,
)
from generate_worker.engine.job import Job
from generate_worker.engine.replay_script import Failure, Output, Source
from generate_worker.engine.scheduler import Scheduler
from generate_worker.engine.sequence import Sequence
from protocol.errors import InternalError, Overloaded, TandemError
from protocol.generate import FinishReason

log = logging.getLogger("tandem.engine")


@dataclass(slots=True, eq=False)
class ReplayEngine(Engine):
    """Runs wholly on the event loop, one task a request: there is no work in it that could block."""

    source: Source
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
        """Tells the ids of all open choices, a chunk of each in turn."""
        try:
            async with asyncio.TaskGroup() as group:
                for sequence, output in zip(job.sequences, outputs, strict=True):
                    group.create_task(self._choice(job, sequence, output))
        except* TandemError as errors:
            self._fail(job, next(error for error in errors.exceptions if isinstance(error, TandemError)))
        except* Exception as errors:  # as in every engine: a failed step becomes the request's error
            log.exception("a replay failed")
            name = type(errors.exceptions[0]).__name__
            self._fail(job, InternalError(f"the engine failed at this request: {name}; the worker's log has the details"))

    async def _choice(self, job: Job, sequence: Sequence, output: Output) -> None:
        begun, told = time.monotonic(), 0
        failure = output.failure
        while not sequence.finished:
            count = output.pace.chunk
            if failure is not None:
                if sequence.output_length >= failure.after:
                    fault, failure = failure, None
                    before = time.monotonic()
                    await self._go_wrong(job, sequence, output, fault)
                    begun += time.monotonic() - before
                    continue
                count = min(count, failure.after - sequence.output_length)
            told += count
            await asyncio.sleep(max(0.0, output.pace.due(begun, told) - time.monotonic()))
            if not sequence.finished:
                self._emit(job, merged(self._steps(job, sequence, output, count)))

    async def _go_wrong(self, job: Job, sequence: Sequence, output: Output, fault: Failure) -> None:
        match fault.kind:
            case "stall":
                await (asyncio.sleep(fault.seconds) if fault.seconds is not None else asyncio.Event().wait())
            case "drop":
                raise ConnectionCut("this failure was asked for by the replay script")
            case "error":
                raise InternalError(fault.message)
            case kind:
                first, *more = self._steps(job, sequence, output, 1)
                if kind == "missing":
                    self._emit(job, more)
                elif kind == "duplicate":
                    self._emit(job, [first, first, *more])
                else:
                    self._emit(job, [first, *(more or job.cut(FinishReason.LENGTH, time.monotonic(), sequence)), first])

    def _steps(self, job: Job, sequence: Sequence, output: Output, count: int) -> list[Step]:
        """Of the next ids."""
        now = time.monotonic()
        steps: list[Step] = []
        for _ in range(count):
            if sequence.finished:
                break
            token_id = next(output.token_ids, None)
            if token_id is None:
                steps += job.cut(output.then, now, sequence)
            else:
                stops = output.stop_at == sequence.output_length
                steps += job.accept(sequence, token_id, _certain(job.request.params.logprobs, token_id), now, stops=stops)
        return steps

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
