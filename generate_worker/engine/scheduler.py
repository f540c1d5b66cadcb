"""Which sequences run in the next step, how much of a prompt is computed in it, and who holds which blocks of the KV cache.

Plain bookkeeping without tensors or threads: the engine holds its lock while it calls. First come, first served, within a priority.
A sequence that runs out of blocks takes those of the last in that order, which goes back to the queue and is computed anew later
on: its ids are kept, so nobody sees it but by the time it takes.
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from generate_worker.engine.base import EngineRequest, Stats
from generate_worker.engine.block_pool import BLOCK, BlockPool, blocks_for
from generate_worker.engine.job import Job
from generate_worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """Positions `start`.. of a sequence to be computed in a step."""

    sequence: Sequence
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    @property
    def token_ids(self) -> list[int]:
        return self.sequence.ids[self.start : self.end]

    @property
    def due(self) -> bool:
        """Whether a token is to be sampled: all ids that are known will have been computed."""
        return self.end == len(self.sequence.ids)

    @property
    def decodes(self) -> bool:
        """Whether it is the next step of a sequence, and no part of a prompt."""
        return self.count == 1 and self.due


@dataclass(slots=True)
class Scheduler:
    """`max_seqs` bounds the sequences that run at once, `chunk_tokens` the prompt tokens of a step (`alone_tokens` where no stream
    waits for the step to end), `max_queue` waiting requests.

    `running` and `waiting` are in the order in which sequences go first. Where `shares` is false no request finds another's blocks.
    """

    pool: BlockPool
    max_seqs: int
    chunk_tokens: int
    max_queue: int
    shares: bool = True
    alone_tokens: int | None = None
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    preemptions: int = 0

    @property
    def jobs(self) -> list[Job]:
        """Those of which anything runs."""
        return list(dict.fromkeys(sequence.job for sequence in self.running))

    @property
    def jobs_waiting(self) -> list[Job]:
        """Those of which nothing runs: new ones, and some whose blocks were taken."""
        running = {sequence.job for sequence in self.running}
        return list(dict.fromkeys(one.job for one in self.waiting if one.job not in running))

    @property
    def full(self) -> bool:
        """Whether one more request would wait beyond the bound. What can run at once does not count as waiting."""
        return len(self.jobs_waiting) >= self.max_queue + self.max_seqs - len(self.running)

    def stats(self) -> Stats:
        return Stats(
            running=len(self.jobs),
            waiting=len(self.jobs_waiting),
            slots_used=len(self.running),
            slots_total=self.max_seqs,
            kv_tokens_used=self.pool.used * BLOCK,
            kv_tokens_cached=self.pool.cached * BLOCK,
            kv_tokens_total=self.pool.size * BLOCK,
            preemptions=self.preemptions,
        )

    def salt(self, request: EngineRequest, arrival: int) -> str:
        """What keeps the blocks of a request apart from those of others."""
        return f"shared {request.cache_salt or ''}" if self.shares else f"own {arrival}"

    def add(self, job: Job) -> None:
        for sequence in job.sequences:
            self._insert(self.waiting, sequence)

    def drop(self, job: Job) -> list[int]:
        """Forgets a job, wherever it stands. Returns the blocks that it held."""
        held = [block for sequence in job.sequences for block in sequence.blocks]
        for sequence in job.sequences:
            self._free(sequence)
        self.waiting = [one for one in self.waiting if one.job is not job]
        self.running = [one for one in self.running if one.job is not job]
        return held

    def settle(self) -> None:
        """A step has ended: what finished choices held is free."""
        for sequence in self.running:
            if sequence.finished:
                self._free(sequence)
        self.running = [one for one in self.running if not one.finished]

    def plan(self, now: float) -> list[Work]:
        """The next step. Sequences that enter get their blocks, and their jobs their start time."""
        decoding = any(len(one.ids) - one.computed == 1 for one in self.running)
        budget = self.chunk_tokens if decoding else self.alone_tokens or self.chunk_tokens
        before = self.preemptions
        works: list[Work] = []
        for sequence in list(self.running):
            if sequence.blocks and self._grow(sequence):
                missing = len(sequence.ids) - sequence.computed
                count = missing if missing == 1 else min(missing, budget)
                budget -= count if missing > 1 else 0
                if count:
                    works.append(Work(sequence, sequence.computed, count))
        if self.preemptions == before:
            works += self._admitted(budget, now)
        return works

    def computed(self, work: Work) -> None:
        """A step's work is done: what it filled can be found by others."""
        sequence = work.sequence
        sequence.computed = work.end
        first, last = work.start // BLOCK, work.end // BLOCK
        for block, digest in zip(sequence.blocks[first:last], sequence.hashes(work.end)[first:], strict=True):
            self.pool.seal(block, digest)

    def _admitted(self, budget: int, now: float) -> Iterator[Work]:
        while budget > 0 and self.waiting and len(self.running) < self.max_seqs:
            sequence = self.waiting[0]
            leader = sequence.job.sequences[0]
            if leader in self.running and leader is not sequence and leader.computed < len(sequence.request.prompt_ids):
                return  # choices share their prompt's blocks: the first computes them
            if not self._enter(sequence):
                return
            sequence.job.begin(sequence, now)
            work = Work(sequence, sequence.computed, min(len(sequence.ids) - sequence.computed, budget))
            budget -= work.count
            yield work

    def _enter(self, sequence: Sequence) -> bool:
        """Gives a waiting sequence the blocks for all its ids, found or free; false where there are too few."""
        known = self.pool.find(sequence.hashes(len(sequence.ids) - 1)) if sequence.job.may_reuse(sequence) else []
        new = blocks_for(len(sequence.ids)) - len(known)
        # Room for a block more of each that runs: who enters would else be sent back at once.
        if new + len(self.running) > self.pool.free - self.pool.idle(known):
            return False
        self.pool.hold(known)
        sequence.blocks = [*known, *self.pool.take(new)]
        sequence.computed = len(known) * BLOCK
        self.waiting.remove(sequence)
        self._insert(self.running, sequence)
        return True

    def _grow(self, sequence: Sequence) -> bool:
        """Makes room for all its ids; false where that took its own blocks."""
        while len(sequence.blocks) < blocks_for(len(sequence.ids)):
            if self.pool.free:
                sequence.blocks += self.pool.take(1)
                continue
            last = self.running[-1]
            self._preempt(last)
            if last is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        self._free(sequence)
        self.running.remove(sequence)
        self._insert(self.waiting, sequence)

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks, sequence.computed = [], 0

    @staticmethod
    def _insert(ordered: list[Sequence], sequence: Sequence) -> None:
        bisect.insort(ordered, sequence, key=lambda one: one.order)
