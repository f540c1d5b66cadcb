"""The scheduler as a machine: whatever comes and goes, rows stay compact, every KV position is where it is looked for."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from generate_worker.engine.base import EngineRequest, Generation
from generate_worker.engine.job import Job
from generate_worker.engine.scheduler import Move, Scheduler
from protocol.sampling import SamplingParams

SLOTS = 5


class Cache:
    """Rows that remember which ids were computed in them: what the real cache's tensors stand for."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = [[] for _ in range(SLOTS)]

    def apply(self, moves: list[Move]) -> None:
        for move in moves:
            assert len(self.rows[move.source]) >= move.length
            self.rows[move.target] = self.rows[move.source][: move.length]

    def write(self, row: int, start: int, ids: list[int]) -> None:
        assert len(self.rows[row]) >= start
        self.rows[row] = self.rows[row][:start] + ids


def new_job(number: int, prompt: int, n: int, output: int) -> Job:
    ids = [number * 1000 + i for i in range(prompt)]
    request = EngineRequest(str(number), ids, SamplingParams(n=n), 0, output)
    return Job(Generation(request, lambda generation: None), number, 0.0)


def step(scheduler: Scheduler, cache: Cache) -> int:
    """One engine step without a model. Returns how many tokens came out."""
    plan = scheduler.plan(1.0)
    cache.apply(plan.moves)
    assert [sequence.slot for _, sequence in plan.decodes] == list(range(len(plan.decodes)))
    assert sum(len(chunk.token_ids) for chunk in plan.chunks) <= scheduler.chunk_tokens
    assert scheduler.slots_used <= SLOTS
    due = list(plan.decodes)
    for _, sequence in plan.decodes:
        cache.write(sequence.slot, sequence.computed, [sequence.output_ids[-1]])
        sequence.computed += 1
    for chunk in plan.chunks:
        cache.write(chunk.leader.slot, chunk.start, chunk.token_ids)
        chunk.leader.computed += len(chunk.token_ids)
        if chunk.last:
            due += [(chunk.job, sequence) for sequence in chunk.job.sequences]
    for job, sequence in due:
        row = chunk_row(job, sequence)
        assert cache.rows[row][: len(sequence.known_ids)] == sequence.known_ids
        job.accept(sequence, 10**6 + sequence.index * 1000 + len(sequence.output_ids), None, 2.0)
    for chunk in plan.chunks:
        if chunk.last:
            cache.apply(scheduler.prefilled(chunk.job))
    scheduler.settle()
    assert sum(1 for job in scheduler.prefilling) <= 1
    return len(due)


def chunk_row(job: Job, sequence: Any) -> int:
    """A choice that has not decoded yet has its leader's row for context."""
    leader = job.sequences[0]
    slot: int = sequence.slot if sequence.computed else leader.slot
    return slot


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_comes_and_goes_every_choice_reads_its_own_row(data: st.DataObject) -> None:
    scheduler, cache, jobs = Scheduler(SLOTS, data.draw(st.integers(1, 12)), 100), Cache(), []
    for number in range(1, data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["add", "add", "step", "step", "drop"])):
            case "add":
                job = new_job(number, data.draw(st.integers(1, 20)), data.draw(st.integers(1, SLOTS)), data.draw(st.integers(1, 6)))
                jobs.append(job)
                scheduler.add(job)
            case "step":
                step(scheduler, cache)
            case "drop" if jobs:
                job = data.draw(st.sampled_from(jobs))
                scheduler.drop(job)
                jobs.remove(job)
    for _ in range(1000):
        if not (scheduler.running or scheduler.waiting):
            break
        step(scheduler, cache)
    assert all(job.finished for job in jobs)
    assert scheduler.slots_used == 0
    assert scheduler.kv_tokens == 0


def test_first_come_first_served_within_a_priority() -> None:
    scheduler = Scheduler(1, 100, 100)
    jobs = [new_job(number, 3, 1, 1) for number in range(5)]
    for job in jobs:
        scheduler.add(job)
    assert scheduler.waiting == jobs
    cache, order = Cache(), []
    while scheduler.waiting:
        order.append(scheduler.waiting[0].arrival)
        step(scheduler, cache)
    assert order == [0, 1, 2, 3, 4]


def test_the_queue_is_full_when_its_bound_waits_beyond_the_free_rows() -> None:
    scheduler = Scheduler(2, 100, 3)
    for number in range(5):
        assert not scheduler.full
        scheduler.add(new_job(number, 3, 1, 5))
    assert scheduler.full
    step(scheduler, Cache())
    assert scheduler.full
    assert len(scheduler.waiting) == 3
