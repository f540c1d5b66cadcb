"""The default engine: a transformers model on the CPU or a CUDA device, batched continuously in a thread of its own.

Requests join and leave between steps. The lock guards the scheduler, and is held for bookkeeping only, never during a forward; what
a step brought is handed to the event loop in one piece.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from generate_worker.engine import sampler
from generate_worker.engine.base import Engine, EngineRequest, Generation, Observer, Stats, Step
from generate_worker.engine.job import Job
from generate_worker.engine.model_runner import Forward, ModelRunner
from generate_worker.engine.sampler import NotNumbers, Sampled
from generate_worker.engine.scheduler import Scheduler, Work
from generate_worker.engine.scores import scores
from protocol.errors import InternalError, Overloaded, TandemError
from protocol.generate import FinishReason

log = logging.getLogger("tandem.engine")


@dataclass(slots=True)
class Mail:
    """What one step has for the event loop."""

    steps: list[tuple[Job, list[Step]]] = field(default_factory=list)
    failures: list[tuple[Job, TandemError]] = field(default_factory=list)


class TorchEngine(Engine):
    def __init__(self, runner: ModelRunner, scheduler: Scheduler, observer: Observer) -> None:
        self.runner = runner
        self._scheduler = scheduler
        self._observer = observer
        self._changed = threading.Condition()
        self._jobs: dict[Generation, Job] = {}
        self._arrivals = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- on the event loop

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="tandem-engine", daemon=True)
        self._thread.start()

    def submit(self, request: EngineRequest) -> Generation:
        generation = Generation(request, self._abandon)
        now = time.monotonic()
        with self._changed:
            if self._closing or not self.alive:
                raise Overloaded("this worker's engine is not running", retry_after=5)
            if self._scheduler.full:
                raise Overloaded(f"{len(self._scheduler.jobs_waiting)} requests are waiting already; try again later, or elsewhere")
            self._arrivals += 1
            job = Job(generation, self._arrivals, now, self._scheduler.salt(request, self._arrivals))
            self._jobs[generation] = job
            if not job.sequences[0].exhausted:
                self._scheduler.add(job)
                self._changed.notify()
                return generation
        self._deliver(Mail([(job, job.cut(FinishReason.LENGTH, now))]))
        return generation

    def abort(self, request_id: str) -> int:
        named = [job for generation, job in self._jobs.items() if generation.request.request_id == request_id and not job.cancelled]
        for job in named:
            self._cancel(job)
        return len(named)

    def fail_all(self, error: TandemError) -> None:
        for generation, job in list(self._jobs.items()):
            generation.fail(error)
            self._observer.failed()
            self._cancel(job)

    def stats(self) -> Stats:
        with self._changed:
            return replace(self._scheduler.stats(), batch_invariant=self.runner.batch_invariant)

    def _abandon(self, generation: Generation) -> None:
        job = self._jobs.get(generation)
        if job is not None:
            self._cancel(job)

    def _cancel(self, job: Job) -> None:
        """A waiting job ends here and now; a running one when the step under way has ended."""
        with self._changed:
            job.cancelled = True
            waiting = job in self._scheduler.jobs_waiting
            if waiting:
                self._scheduler.drop(job)
            self._changed.notify()
        if waiting:
            self._deliver(Mail([(job, job.cut(FinishReason.ABORT, time.monotonic()))]))

    def _deliver(self, mail: Mail) -> None:
        for job, steps in mail.steps:
            job.generation.deliver(steps)
            if not job.generation.failed:
                self._observer.steps(steps)
            if job.finished:
                self._jobs.pop(job.generation, None)
        for job, error in mail.failures:
            if not job.generation.ended:
                job.generation.fail(error)
                self._observer.failed()
            self._jobs.pop(job.generation, None)

    # ---- from any thread

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # ---- in the engine's thread

    def _run(self) -> None:
        try:
            while (works := self._next()) is not None:
                self._post(self._step(works))
        finally:
            self.alive = False
            self._call(lambda: self.fail_all(InternalError("the engine has stopped")))

    def _next(self) -> list[Work] | None:
        """The next step, waiting for one; None when the engine closes."""
        with self._changed:
            while not self._closing:
                mail = self._drop_cancelled()
                if mail.steps:
                    self._post(mail)
                works = self._scheduler.plan(time.monotonic())
                if works:
                    return works
                self._changed.wait()
        return None

    def _step(self, works: list[Work]) -> Mail:
        """One forward and one token for every choice that is due. Whatever goes wrong ends the step's requests, and no others."""
        try:
            forward = self.runner.run(works)
            self._score_prompts(forward)
            sampled = sampler.sample(forward.logits[: len(forward.due)], forward.due) if forward.due else []
            with self._changed:
                return self._apply(works, forward, sampled)
        except Exception as error:  # the one place where an engine's failure becomes its requests' error
            log.exception("an engine step failed")
            failure = _failure(error)
            jobs = list(dict.fromkeys(work.sequence.job for work in works))
            with self._changed:
                for job in jobs:
                    self._drop(job, spoilt=True)
            return Mail(failures=[(job, failure) for job in jobs])

    def _score_prompts(self, forward: Forward) -> None:
        first = len(forward.due)
        for part in forward.scored:
            job, rows = part.sequence.job, forward.logits[first : first + part.count]
            first += part.count
            places = slice(part.start + 1, part.start + 1 + part.count)
            ids = job.request.prompt_ids[places]
            job.prompt_scores[places] = scores(rows, ids, [job.request.params.prompt_logprobs or 0] * part.count)

    def _apply(self, works: list[Work], forward: Forward, sampled: list[Sampled]) -> Mail:
        """What was computed and sampled, as steps of the jobs."""
        now = time.monotonic()
        failed = {sequence.job: one.error for sequence, one in zip(forward.due, sampled, strict=True) if one.error is not None}
        steps: dict[Job, list[Step]] = {}
        for work in works:
            self._scheduler.computed(work)
        for sequence, one in zip(forward.due, sampled, strict=True):
            job = sequence.job
            if not job.cancelled and job not in failed:
                steps.setdefault(job, []).extend(job.accept(sequence, one.token_id, one.score, now))
                if sequence.grammar is not None and not sequence.finished:
                    sequence.grammar.advance(one.token_id)
        for job, error in failed.items():
            self._drop(job, spoilt=isinstance(error, NotNumbers))
        self._scheduler.settle()
        return Mail(list(steps.items()), list(failed.items()))

    def _drop(self, job: Job, *, spoilt: bool) -> None:
        """`spoilt`: what it left in the cache may be no numbers, and is taken out where nobody else has it."""
        blocks = self._scheduler.drop(job)
        if spoilt:
            self.runner.scrub(self._scheduler.pool.discard(blocks))

    def _drop_cancelled(self) -> Mail:
        now = time.monotonic()
        gone = [job for job in self._scheduler.jobs if job.cancelled]
        for job in gone:
            self._scheduler.drop(job)
        return Mail([(job, steps) for job in gone if (steps := job.cut(FinishReason.ABORT, now))])

    def _post(self, mail: Mail) -> None:
        self._call(lambda: self._deliver(mail))

    def _call(self, work: Callable[[], None]) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # the loop has closed: nobody listens any more
            log.debug("the event loop closed before the engine")


def _failure(error: Exception) -> TandemError:
    if isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error):
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return InternalError(
            "the model ran out of memory at this request; a shorter prompt may fit, or a smaller --kv-cache-memory"
        )
    return InternalError(f"the engine failed at this request: {type(error).__name__}; the worker's log has the details")
