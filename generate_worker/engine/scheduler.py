"""Which choices run in the next step, which prompt is prefilled how far, and which row of the KV cache each has.

Plain bookkeeping without tensors or threads: the engine holds its lock while it calls. Rows are kept compact: the decoding choices
have rows 0..d-1, so that their keys are one slice of the cache, and behind them stands at most one job whose prefill is under way.
(Prefill is first come, first served out of one token budget, so no second prompt is ever half done.)
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from generate_worker.engine.job import Job
from generate_worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the first `length` positions of row `source` to row `target`."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions `start`.. of a job's prompt, computed in the row of its first choice. `last`: the first tokens can be sampled."""

    job: Job
    start: int
    token_ids: list[int]
    last: bool

    @property
    def leader(self) -> Sequence:
        return self.job.sequences[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: first the moves, then one forward over all decoding choices (in row order) and the chunks."""

    moves: list[Move]
    decodes: list[tuple[Job, Sequence]]
    chunks: list[Chunk]

    @property
    def jobs(self) -> list[Job]:
        return list(dict.fromkeys([*(job for job, _ in self.decodes), *(chunk.job for chunk in self.chunks)]))


@dataclass(slots=True)
class Scheduler:
    """`slots` bounds the choices that run at once, `chunk_tokens` the prompt tokens of a step, `max_queue` the waiting requests."""

    slots: int
    chunk_tokens: int
    max_queue: int
    waiting: list[Job] = field(default_factory=list)
    prefilling: list[Job] = field(default_factory=list)
    decoding: list[tuple[Job, Sequence]] = field(default_factory=list)

    @property
    def running(self) -> list[Job]:
        return list(dict.fromkeys([*(job for job, _ in self.decoding), *self.prefilling]))

    @property
    def slots_used(self) -> int:
        return len(self.decoding) + sum(len(job.sequences) for job in self.prefilling)

    @property
    def kv_tokens(self) -> int:
        return sum(sequence.computed for job in self.running for sequence in job.sequences if not sequence.finished)

    @property
    def full(self) -> bool:
        """Whether one more request would wait beyond the bound. What the free rows can take at once does not count as waiting."""
        return len(self.waiting) >= self.max_queue + self.slots - self.slots_used

    def add(self, job: Job) -> None:
        bisect.insort(self.waiting, job, key=lambda one: (one.request.priority, one.arrival))

    def drop(self, job: Job) -> None:
        """Forgets a job, wherever it stands."""
        for jobs in (self.waiting, self.prefilling):
            if job in jobs:
                jobs.remove(job)
        self.decoding = [(owner, sequence) for owner, sequence in self.decoding if owner is not job]

    def settle(self) -> None:
        """A step has ended: rows of finished choices are free."""
        self.decoding = [(job, sequence) for job, sequence in self.decoding if not sequence.finished]

    def plan(self, now: float) -> Plan:
        """The next step. Jobs that enter get their rows and their start time."""
        moves = self._compact()
        decodes = list(self.decoding)
        return Plan(moves, decodes, list(self._chunks(now)))

    def prefilled(self, job: Job) -> list[Move]:
        """A job's last chunk has been computed: its open choices decode from here on, each from a copy of the first one's row."""
        self.prefilling.remove(job)
        leader = job.sequences[0]
        open_ones = [sequence for sequence in job.sequences if not sequence.finished]
        self.decoding += [(job, sequence) for sequence in open_ones]
        for sequence in job.sequences:
            sequence.computed = leader.computed
        return [Move(leader.slot, one.slot, leader.computed) for one in open_ones if one is not leader]

    def _compact(self) -> list[Move]:
        count = len(self.decoding)
        taken = {sequence.slot for _, sequence in self.decoding}
        holes = iter([row for row in range(count) if row not in taken])
        moves = [_place(sequence, next(holes)) for _, sequence in self.decoding if sequence.slot >= count]
        self.decoding.sort(key=lambda pair: pair[1].slot)
        for row, sequence in enumerate([one for job in self.prefilling for one in job.sequences], start=count):
            moves.append(_place(sequence, row))
        return [move for move in moves if move.length and move.source != move.target]

    def _chunks(self, now: float) -> Iterator[Chunk]:
        budget = self.chunk_tokens
        for job in self.prefilling:
            chunk = _next_chunk(job, budget)
            budget -= len(chunk.token_ids)
            yield chunk
        while budget > 0 and self.waiting and len(self.waiting[0].sequences) <= self.slots - self.slots_used:
            job = self.waiting.pop(0)
            job.begin(now)
            for row, sequence in enumerate(job.sequences, start=self.slots_used):
                sequence.slot = row
            self.prefilling.append(job)
            chunk = _next_chunk(job, budget)
            budget -= len(chunk.token_ids)
            yield chunk


def _next_chunk(job: Job, budget: int) -> Chunk:
    leader = job.sequences[0]
    ids = leader.known_ids[leader.computed : leader.computed + budget]
    return Chunk(job, leader.computed, ids, leader.computed + len(ids) == leader.length)


def _place(sequence: Sequence, row: int) -> Move:
    move = Move(sequence.slot, row, sequence.computed)
    sequence.slot = row
    return move
