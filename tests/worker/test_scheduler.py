"""The scheduler as a machine: whatever comes and goes, every position is read where it was written, and every block comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from generate_worker.engine.base import EngineRequest, Generation
from generate_worker.engine.block_pool import BLOCK, BlockPool
from generate_worker.engine.job import Job
from generate_worker.engine.scheduler import Scheduler, Work
from protocol.sampling import SamplingParams

SEQS = 5


class Cache:
    """Blocks that remember which id was computed where, behind which others: what the real cache's tensors stand for."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], tuple[int, ...]] = {}

    def write(self, work: Work) -> None:
        ids = work.sequence.ids
        for place in range(work.start, work.end):
            self.places[work.sequence.blocks[place // BLOCK], place % BLOCK] = tuple(ids[: place + 1])

    def holds(self, work: Work) -> bool:
        """Whether all that the work's last position attends to is there."""
        sequence = work.sequence
        return all(
            self.places.get((sequence.blocks[place // BLOCK], place % BLOCK)) == tuple(sequence.ids[: place + 1])
            for place in range(work.end)
        )


def scheduler(blocks: int = 100, seqs: int = SEQS, chunk: int = 100, queue: int = 100, *, shares: bool = True) -> Scheduler:
    return Scheduler(BlockPool(blocks), seqs, chunk, queue, shares)


def new_job(
    machine: Scheduler, number: int, ids: list[int], n: int = 1, output: int = 1, salt: str | None = None, priority: int = 0
) -> Job:
    request = EngineRequest(str(number), ids, SamplingParams(n=n), 0, output, cache_salt=salt, priority=priority)
    return Job(Generation(request, lambda generation: None), number, 0.0, machine.salt(request, number))


def step(machine: Scheduler, cache: Cache) -> list[Work]:
    """One engine step without a model."""
    works = machine.plan(1.0)
    assert len({work.sequence for work in works}) == len(works)
    waits = any(work.decodes and work.start for work in works)
    most = machine.chunk_tokens if waits else machine.alone_tokens or machine.chunk_tokens
    assert sum(work.count for work in works if not work.decodes) <= most
    assert len(machine.running) <= machine.max_seqs
    for work in works:
        assert work.count > 0
        cache.write(work)
    for work in works:
        assert cache.holds(work)
        machine.computed(work)
        if work.due:
            sequence = work.sequence
            sequence.job.accept(sequence, 10**6 + sequence.index * 1000 + sequence.output_length, None, 2.0)
    machine.settle()
    return works


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=70)
"""Of two ids only, so that they often begin alike."""


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_comes_and_goes_every_choice_reads_its_own_past(data: st.DataObject) -> None:
    machine = scheduler(data.draw(st.integers(7, 20)), chunk=data.draw(st.integers(1, 50)), shares=data.draw(st.booleans()))
    cache, jobs = Cache(), []
    for number in range(1, data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["add", "add", "step", "step", "drop"])):
            case "add":
                output = data.draw(st.integers(1, 40))
                job = new_job(machine, number, data.draw(PROMPTS), data.draw(st.integers(1, SEQS)), output)
                jobs.append(job)
                machine.add(job)
            case "step":
                step(machine, cache)
            case "drop" if jobs:
                job = data.draw(st.sampled_from(jobs))
                machine.drop(job)
                jobs.remove(job)
    for _ in range(3000):
        if not step(machine, cache):
            break
    assert all(job.finished for job in jobs)
    assert not machine.running
    assert not machine.waiting
    assert machine.pool.used == 0


def test_who_comes_last_gives_way_and_comes_back() -> None:
    machine, cache = scheduler(blocks=6), Cache()
    jobs = [new_job(machine, number, [number] * 30, output=40) for number in (1, 2)]
    for job in jobs:
        machine.add(job)
    order: list[int] = []
    while step(machine, cache):
        order += [job.arrival for job in jobs if job.finished and job.arrival not in order]
    assert machine.preemptions
    assert order == [1, 2]
    assert [job.sequences[0].output_length for job in jobs] == [40, 40]


def test_first_come_first_served_within_a_priority() -> None:
    machine, cache = scheduler(seqs=1), Cache()
    for number, priority in enumerate((0, 0, 5, -1, 0)):
        machine.add(new_job(machine, number, [1, 2, 3], priority=priority))
    order: list[int] = []
    while works := step(machine, cache):
        order += [work.sequence.job.arrival for work in works]
    assert order == [3, 0, 1, 4, 2]


def test_the_queue_is_full_when_its_bound_waits_beyond_what_can_run() -> None:
    machine = scheduler(seqs=2, queue=3)
    for number in range(5):
        assert not machine.full
        machine.add(new_job(machine, number, [1, 2, 3], output=5))
    assert machine.full
    step(machine, Cache())
    assert machine.full
    assert len(machine.jobs_waiting) == 3


def test_chunks_are_shorter_while_a_stream_waits_for_the_step_to_end() -> None:
    machine, cache = scheduler(chunk=10), Cache()
    machine.alone_tokens = 30
    machine.add(new_job(machine, 0, [1] * 35, output=9))
    machine.add(new_job(machine, 1, [2] * 60))
    counts = [[work.count for work in step(machine, cache)] for _ in range(4)]
    # The second prompt gets what is left of a step in which nobody waits, then less.
    assert counts == [[30], [5, 25], [1, 10], [1, 10]]


def test_prompts_that_begin_alike_share_whole_blocks_and_only_within_their_salt() -> None:
    machine, cache, prompt = scheduler(), Cache(), [7] * (3 * BLOCK)
    found = []
    for number, salt in enumerate((None, None, "a", "a", None)):
        job = new_job(machine, number, prompt, salt=salt)
        machine.add(job)
        step(machine, cache)
        found.append(job.cached_tokens)
    # The last token of a prompt is always computed: the first of the output comes of it.
    assert found == [0, 2 * BLOCK, 0, 2 * BLOCK, 2 * BLOCK]


def test_requests_that_do_not_share_still_share_a_prompt_among_their_choices() -> None:
    machine, cache = scheduler(shares=False), Cache()
    for number in range(2):
        job = new_job(machine, number, [7] * (4 * BLOCK + 1), n=3)
        machine.add(job)
        first, rest = step(machine, cache), step(machine, cache)
        assert [work.count for work in first] == [4 * BLOCK + 1]
        assert [work.count for work in rest] == [1, 1]
        assert job.cached_tokens == 0


def test_the_longest_unused_block_goes_first_and_a_sequences_end_before_its_beginning() -> None:
    machine, cache = scheduler(blocks=8), Cache()
    for number, token_id in enumerate((1, 2)):
        machine.add(new_job(machine, number, [token_id] * (3 * BLOCK)))
        step(machine, cache)
    machine.add(new_job(machine, 3, [3] * (4 * BLOCK)))
    step(machine, cache)
    kept = []
    for number, token_id in ((4, 1), (5, 2)):
        job = new_job(machine, number, [token_id] * (3 * BLOCK))
        kept.append(len(machine.pool.find(job.sequences[0].hashes(3 * BLOCK))))
    assert kept == [1, 3]


@given(st.lists(st.integers(0, 2**40), min_size=3 * BLOCK, max_size=3 * BLOCK), st.integers(1, 99))
def test_a_hash_stands_for_every_id_of_its_block_and_before(ids: list[int], other: int) -> None:
    machine = scheduler()

    def hashes(of: list[int]) -> list[bytes]:
        return new_job(machine, 0, of).sequences[0].hashes(len(of))

    for place, token_id in enumerate(ids):
        changed = hashes([*ids[:place], token_id + other, *ids[place + 1 :]])
        assert [one == two for one, two in zip(hashes(ids), changed, strict=True)] == [block < place // BLOCK for block in range(3)]
