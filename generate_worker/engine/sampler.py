"""From logits to token ids. Functions of their arguments alone, over float32 [batch, vocab]; each row stands for itself.

Log probabilities are told of the raw logits. Then comes what the parameters do to them (`adjustments`), then temperature, min_p,
top_k and top_p, as in vLLM.
"""

import math
from dataclasses import dataclass

import torch

from generate_worker.engine import noise
from generate_worker.engine.adjustments import NEVER, adjust, needed
from generate_worker.engine.base import Score
from generate_worker.engine.scores import scores
from generate_worker.engine.sequence import Sequence
from protocol.errors import InternalError, TandemError

GREEDY_BELOW = 1e-5
"""Temperatures under this are 0 (vLLM's bound)."""

_CANDIDATES = 1024
"""How many of the best logits top_p looks at before it sorts the whole vocabulary."""


class NothingAllowed(TandemError):
    """The request's own parameters exclude every token at this position."""

    status, kind = 400, "BadRequestError"


class NotNumbers(InternalError):
    """The model's logits are no numbers: its precision is too small for it, or its weights are broken."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's outcome: the id, or why there is none."""

    token_id: int
    score: Score | None = None
    error: TandemError | None = None


@torch.inference_mode()
def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[Sampled]:
    """The next id of each sequence, whose row of `logits` it is. Overwrites `logits`."""
    told = [row for row, sequence in enumerate(sequences) if sequence.request.params.logprobs is not None]
    raw = logits[told]
    best = logits.amax(-1).tolist()
    adjusted = [row for row, sequence in enumerate(sequences) if needed(sequence)]
    if adjusted:
        rows = logits[adjusted]
        adjust(rows, [sequences[row] for row in adjusted])
        logits[adjusted] = rows
    ids = _choose(logits, sequences)
    picked = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None])[:, 0].tolist()
    wanted = [sequences[row].request.params.logprobs or 0 for row in told]
    by_row = dict(zip(told, scores(raw, [ids[row] for row in told], wanted), strict=True))
    return [
        Sampled(token_id, by_row.get(row), _error(most, value))
        for row, (token_id, most, value) in enumerate(zip(ids, best, picked, strict=True))
    ]


def _error(best: float, picked: float) -> TandemError | None:
    if not math.isfinite(best):
        return NotNumbers("the model's logits are not finite; a wider --dtype may help")
    if picked == NEVER:
        return NothingAllowed(
            "structured_outputs, allowed_token_ids, bad_words_token_ids, min_tokens and logit_bias together allow no token here"
        )
    return None


def _choose(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    drawn = [i for i, sequence in enumerate(sequences) if sequence.request.params.temperature >= GREEDY_BELOW]
    ids: list[int] = logits.argmax(-1).tolist() if len(drawn) < len(sequences) else [0] * len(sequences)
    # A row at a time on the CPU, where the work of one row fits the cache and that of eight does not; at once on an accelerator.
    groups = [[i] for i in drawn] if logits.device.type == "cpu" else [drawn] if drawn else []
    for group in groups:
        chosen = draw(logits[group], Draws.of([sequences[i] for i in group], logits.shape[1], logits.device)).tolist()
        for i, token_id in zip(group, chosen, strict=True):
            ids[i] = token_id
    return ids


@dataclass(frozen=True, slots=True)
class Draws:
    """What a random draw needs of each row: tensors [batch, 1]. `top_k` is the vocabulary's size where it is off.

    `window` is how many of the best logits are sorted first: 0 where no row asks for top_k or top_p.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    keys: torch.Tensor
    window: int
    restricted: bool

    @classmethod
    def of(cls, sequences: list[Sequence], vocabulary: int, device: torch.device) -> "Draws":
        params = [sequence.request.params for sequence in sequences]
        top_k = [one.top_k if 0 < one.top_k < vocabulary else vocabulary for one in params]
        nucleus = [_CANDIDATES for one, k in zip(params, top_k, strict=True) if one.top_p < 1 and k == vocabulary]
        keys = [noise.stream_key(one.request.seed, one.index, len(one.ids)) for one in sequences]
        window = max([0, *nucleus, *(k for k in top_k if k < vocabulary)])
        return cls(
            temperature=torch.tensor([[one.temperature] for one in params], dtype=torch.float32, device=device),
            top_k=torch.tensor([[k] for k in top_k], dtype=torch.int64, device=device),
            top_p=torch.tensor([[one.top_p] for one in params], dtype=torch.float32, device=device),
            min_p=torch.tensor([[one.min_p] for one in params], dtype=torch.float32, device=device),
            keys=torch.tensor([[key] for key in keys], dtype=torch.int64, device=device),
            window=min(window, vocabulary),
            restricted=window > 0 or any(one.min_p > 0 for one in params),
        )


def draw(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    """One id a row, int64 [batch], by the Gumbel-max trick: the highest logit after each got its own noise."""
    scaled = logits / draws.temperature
    if draws.restricted:
        limit = cutoff(scaled, draws)
        few = _few(scaled, limit)
        if few is not None:
            values, ids = few
            return ids.gather(1, (values + noise.gumbel(draws.keys, ids)).argmax(-1, keepdim=True)).squeeze(1)
        scaled = scaled.masked_fill_(scaled < limit, NEVER)
    vocabulary = torch.arange(logits.shape[1], device=logits.device)
    return scaled.add_(noise.gumbel(draws.keys, vocabulary)).argmax(-1)


def cutoff(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    """The lowest logit that min_p, then top_k, then top_p leave in each row: [batch, 1]. Equal logits stay or go together."""
    best = logits.max(-1, keepdim=True).values
    floor = best + draws.min_p.log()
    vocabulary, window = logits.shape[1], draws.window
    while window:
        values = logits.topk(window).values
        kept = (values >= floor) & (torch.arange(window, device=logits.device) < draws.top_k)
        weights = (values - best).exp() * kept
        # top_p shares out what min_p and top_k have left. A limited top_k leaves nothing outside the window.
        beyond = ((logits - best).exp() * (logits >= floor)).sum(-1, keepdim=True)
        share = weights / torch.where(draws.top_k < vocabulary, weights.sum(-1, keepdim=True), beyond)
        kept &= (share.cumsum(-1) - share < draws.top_p) | (draws.top_p >= 1)
        count = kept.sum(-1, keepdim=True)
        if window == vocabulary or not bool(((count == window) & (draws.top_k > window)).any()):
            return values.gather(1, count.clamp(min=1) - 1)
        window = vocabulary
    return floor


def _few(logits: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The candidates that are left, as (logits, ids), where they are few in every row; the others' logits are minus infinity."""
    most = max(1, int((logits >= limit).sum(-1).max().item()))
    if most > _CANDIDATES:
        return None
    values, ids = logits.topk(most)
    return values.masked_fill(values < limit, NEVER), ids
