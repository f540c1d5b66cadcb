"""The default engine: a transformers model on the CPU or a CUDA device, batched continuously in a thread of its own.

Requests join and leave between steps. The lock guards the scheduler, and is held for bookkeeping only, never during a forward; what
a step brought is handed to the event loop in one piece.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from generate_worker.engine import sampler
from generate_worker.engine.base import Engine, EngineRequest, Generation, Observer, Stats, Step
from generate_worker.engine.job import Job
from generate_worker.engine.model_runner import ModelRunner
from generate_worker.engine.sampler import Sampled
from generate_worker.engine.scheduler import Plan, Scheduler
from generate_worker.engine.sequence import Sequence
from protocol.errors import InternalError, Overloaded, TandemError
from protocol.generate import FinishReason

log = logging.getLogger("tandem.engine")


@dataclass(slots=True)
class Mail:
    """What one step has for the event loop."""

    steps: list[tuple[Job, list[Step]]] = field(default_factory=list)
    failures: list[tuple[Job, TandemError]] = field(default_factory=list)


class TorchEngine(Engine):
    """`kv_tokens` in its stats count positions; the total is what all rows may grow to."""

    def __init__(self, runner: ModelRunner, scheduler: Scheduler, max_model_len: int, observer: Observer) -> None:
        self.runner = runner
        self._scheduler = scheduler
        self._max_model_len = max_model_len
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
                raise Overloaded(f"{len(self._scheduler.waiting)} requests are waiting already; try again later, or elsewhere")
            self._arrivals += 1
            job = Job(generation, self._arrivals, now)
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
            scheduler = self._scheduler
            total = scheduler.slots * self._max_model_len
            return Stats(
                len(scheduler.running), len(scheduler.waiting), scheduler.slots_used, scheduler.slots, scheduler.kv_tokens, total
            )

    def _abandon(self, generation: Generation) -> None:
        job = self._jobs.get(generation)
        if job is not None:
            self._cancel(job)

    def _cancel(self, job: Job) -> None:
        """A waiting job ends here and now; a running one when the step under way has ended."""
        with self._changed:
            job.cancelled = True
            waiting = job in self._scheduler.waiting
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
            while (plan := self._next()) is not None:
                self._post(self._step(plan))
        finally:
            self.alive = False
            self._call(lambda: self.fail_all(InternalError("the engine has stopped")))

    def _next(self) -> Plan | None:
        """The next step, waiting for one; None when the engine closes."""
        with self._changed:
            while not self._closing:
                mail = self._drop_cancelled()
                if mail.steps:
                    self._post(mail)
                if self._scheduler.running or self._scheduler.waiting:
                    return self._scheduler.plan(time.monotonic())
                self.runner.clear()
                self._changed.wait()
        return None

    def _step(self, plan: Plan) -> Mail:
        """One forward and one token for every choice that is due. Whatever goes wrong ends the step's requests, and no others."""
        try:
            logits = self.runner.run(plan)
            for _, sequence in plan.decodes:
                sequence.computed += 1
            copies = []
            due = list(plan.decodes)
            rows = list(range(len(due)))
            for chunk in plan.chunks:
                chunk.leader.computed += len(chunk.token_ids)
                if chunk.last:
                    due += [(chunk.job, sequence) for sequence in chunk.job.sequences]
                    rows += [rows[-1] + 1 if rows else 0] * len(chunk.job.sequences)
            sampled = (
                sampler.sample(logits if len(rows) == logits.shape[0] else logits[rows], [one for _, one in due]) if due else []
            )
            with self._changed:
                mail = self._apply(due, sampled)
                for chunk in plan.chunks:
                    if chunk.last and chunk.job in self._scheduler.prefilling:
                        copies += self._scheduler.prefilled(chunk.job)
                self._scheduler.settle()
            self.runner.copy(copies)
            return mail
        except Exception as error:  # the one place where an engine's failure becomes its requests' error
            log.exception("an engine step failed")
            failure = InternalError(f"the engine failed at this request: {type(error).__name__}; the worker's log has the details")
            with self._changed:
                for job in plan.jobs:
                    self._scheduler.drop(job)
            return Mail(failures=[(job, failure) for job in plan.jobs])

    def _apply(self, due: list[tuple[Job, Sequence]], sampled: list[Sampled]) -> Mail:
        """The sampled ids as steps of their jobs."""
        now = time.monotonic()
        mail = Mail()
        steps: dict[Job, list[Step]] = {}
        failed: set[Job] = set()
        for (job, sequence), one in zip(due, sampled, strict=True):
            if job.cancelled or job in failed:
                continue
            if one.error is not None:
                failed.add(job)
                mail.failures.append((job, one.error))
                self._scheduler.drop(job)
                continue
            steps.setdefault(job, []).extend(job.accept(sequence, one.token_id, one.score, now))
        mail.steps = [(job, made) for job, made in steps.items() if job not in failed]
        return mail

    def _drop_cancelled(self) -> Mail:
        now = time.monotonic()
        gone = [job for job in self._scheduler.running if job.cancelled]
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
