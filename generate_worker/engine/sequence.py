"""One choice of a request: its ids, and what a further id means for it."""

from collections import Counter
from typing import TYPE_CHECKING

from generate_worker.engine.base import DoneStep, EngineRequest, Score, Step, TokenStep
from generate_worker.engine.block_pool import BLOCK, Chain
from protocol.generate import FinishReason

if TYPE_CHECKING:
    from generate_worker.engine.job import Job


class Sequence:
    """`ids` are prompt and output, resumed ids included; `counts` tells how often each is in the output. The first `computed` of
    them have their keys and values in `blocks`.

    `accept` and `cut` are the only ways in which it changes its output; the scheduler gives and takes blocks.
    """

    __slots__ = (
        "_prompt_set",
        "blocks",
        "chain",
        "computed",
        "counts",
        "finished",
        "grammar",
        "ids",
        "index",
        "job",
        "last_token_at",
        "request",
    )

    def __init__(self, job: "Job", index: int, salt: str) -> None:
        self.job = job
        self.request: EngineRequest = job.request
        self.index = index
        self.ids = [*self.request.prompt_ids, *self.request.resumed_ids]
        self.counts = Counter(self.request.resumed_ids)
        self._prompt_set: frozenset[int] | None = None
        self.blocks: list[int] = []
        self.chain = Chain(salt)
        self.computed = 0
        self.grammar = self.request.grammar() if self.request.grammar else None
        self.finished = False
        self.last_token_at: float | None = None

    @property
    def prompt_set(self) -> frozenset[int]:
        """The ids that the prompt consists of."""
        if self._prompt_set is None:
            self._prompt_set = frozenset(self.request.prompt_ids)
        return self._prompt_set

    @property
    def output_length(self) -> int:
        return len(self.ids) - len(self.request.prompt_ids)

    @property
    def exhausted(self) -> bool:
        return self.output_length >= self.request.max_tokens

    @property
    def order(self) -> tuple[int, int, int]:
        """Who goes first, in the queue and when memory is short."""
        return self.request.priority, self.job.arrival, self.index

    def ends_with(self, ids: list[int]) -> bool:
        """Whether these are the last ids of the output."""
        return not ids or (len(ids) <= self.output_length and self.ids[-len(ids) :] == ids)

    def hashes(self, positions: int) -> list[bytes]:
        """Of the blocks that the first `positions` fill."""
        return self.chain.upto(positions // BLOCK, self.ids)

    def accept(self, token_id: int, score: Score | None, now: float, *, stops: bool = False) -> list[Step]:
        """Takes a sampled id. One step, or two when it is the last that the length allows. `stops` makes it a stopping one."""
        place = self.output_length
        self.ids.append(token_id)
        self.counts[token_id] += 1
        gap = None if self.last_token_at is None else now - self.last_token_at
        self.last_token_at = now
        scores = () if score is None else (score,)
        request = self.request
        if stops or (token_id in request.stop_ids and place >= request.params.min_tokens):
            self.finished = True
            reason = None if token_id == request.primary_eos else token_id
            return [DoneStep(self.index, place, (token_id,), place + 1, FinishReason.STOP, reason, scores, gap)]
        token: Step = TokenStep(self.index, place, (token_id,), scores, gap)
        return [token, self.cut(FinishReason.LENGTH)] if self.exhausted else [token]

    def cut(self, reason: FinishReason) -> DoneStep:
        """Ends the choice where it stands."""
        self.finished = True
        count = self.output_length
        return DoneStep(self.index, count, (), count, reason)
