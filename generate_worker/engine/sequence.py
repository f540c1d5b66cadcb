"""One choice of a request: its ids, and what a further id means for it."""

from generate_worker.engine.base import DoneStep, EngineRequest, Score, Step, TokenStep
from protocol.generate import FinishReason


class Sequence:
    """`output_ids` are all ids of the choice, resumed ones first. `computed` is how many positions the KV cache holds of it.

    `slot` is its row in the cache, -1 while it has none. `accept` and `cut` are the only ways in which it changes its output.
    """

    __slots__ = ("computed", "finished", "index", "last_token_at", "output_ids", "request", "slot")

    def __init__(self, request: EngineRequest, index: int) -> None:
        self.request = request
        self.index = index
        self.output_ids = list(request.resumed_ids)
        self.computed = 0
        self.slot = -1
        self.finished = False
        self.last_token_at: float | None = None

    @property
    def known_ids(self) -> list[int]:
        """Prompt and output so far."""
        return [*self.request.prompt_ids, *self.output_ids]

    @property
    def length(self) -> int:
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def exhausted(self) -> bool:
        return len(self.output_ids) >= self.request.max_tokens

    def accept(self, token_id: int, score: Score | None, now: float, *, stops: bool = False) -> list[Step]:
        """Takes a sampled id. One step, or two when it is the last that the length allows. `stops` makes it a stopping one."""
        place = len(self.output_ids)
        self.output_ids.append(token_id)
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
        count = len(self.output_ids)
        return DoneStep(self.index, count, (), count, reason)
