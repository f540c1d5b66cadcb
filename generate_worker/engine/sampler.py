"""From logits to token ids. Functions of their arguments alone, over float32 [batch, vocab]; each row stands for itself.

The order is vLLM's: log probabilities are told of the raw logits; then allowed ids, banned sequences, minimum length and bias, then
penalties, then temperature, min_p, top_k and top_p.
"""

from collections import Counter
from dataclasses import dataclass

import torch

from generate_worker.engine import noise
from generate_worker.engine.base import Candidate, Score
from generate_worker.engine.sequence import Sequence
from protocol.errors import TandemError
from protocol.sampling import SamplingParams

GREEDY_BELOW = 1e-5
"""Temperatures under this are 0 (vLLM's bound)."""

_CANDIDATES = 1024
"""How many of the best logits top_p looks at before it sorts the whole vocabulary."""

_NEVER = float("-inf")


class NothingAllowed(TandemError):
    """The request's own parameters exclude every token at this position."""

    status, kind = 400, "BadRequestError"


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's outcome: the id, or why there is none."""

    token_id: int
    score: Score | None = None
    error: TandemError | None = None


@torch.inference_mode()
def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[Sampled]:
    """The next id of each sequence, whose row of `logits` it is. Overwrites `logits`."""
    raw = {i: logits[i].log_softmax(-1) for i, one in enumerate(sequences) if one.request.params.logprobs is not None}
    for row, sequence in zip(logits, sequences, strict=True):
        if adjusts(sequence.request.params):
            adjust(row, sequence)
    ids = _choose(logits, sequences)
    picked = logits[torch.arange(len(ids), device=logits.device), torch.tensor(ids, device=logits.device)].tolist()
    return [
        Sampled(token_id, score(raw[i], token_id, sequence.request.params.logprobs or 0) if i in raw else None, _impossible(value))
        for i, (token_id, value, sequence) in enumerate(zip(ids, picked, sequences, strict=True))
    ]


def _impossible(value: float) -> TandemError | None:
    if value == _NEVER:
        return NothingAllowed("allowed_token_ids, bad_words_token_ids, min_tokens and logit_bias together allow no token here")
    return None


def _choose(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    drawn = [i for i, sequence in enumerate(sequences) if sequence.request.params.temperature >= GREEDY_BELOW]
    if not drawn:
        return logits.argmax(-1).tolist()
    ids = logits.argmax(-1).tolist() if len(drawn) < len(sequences) else [0] * len(sequences)
    # A row at a time on the CPU, where the work of one row fits the cache and that of eight does not; at once on an accelerator.
    groups = [[i] for i in drawn] if logits.device.type == "cpu" else [drawn]
    for group in groups:
        for i, token_id in zip(group, _drawn(logits[group], [sequences[i] for i in group]), strict=True):
            ids[i] = token_id
    return ids


def _drawn(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    return draw(logits, Draws.of(sequences, logits.shape[1], logits.device)).tolist()


def adjusts(params: SamplingParams) -> bool:
    """Whether a row needs `adjust`."""
    return bool(
        params.min_tokens
        or params.logit_bias
        or params.allowed_token_ids
        or params.bad_words_token_ids
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1
    )


def adjust(row: torch.Tensor, sequence: Sequence) -> None:
    """Masks, bias and penalties of one row [vocab], in place."""
    params, output = sequence.request.params, sequence.output_ids
    if params.allowed_token_ids:
        allowed = _ids(params.allowed_token_ids, row)
        kept = row[allowed]
        row.fill_(_NEVER)
        row[allowed] = kept
    for banned in params.bad_words_token_ids or []:
        if banned[:-1] == (output[-len(banned) + 1 :] if len(banned) > 1 else []):
            row[banned[-1]] = _NEVER
    if len(output) < params.min_tokens:
        row[_ids([one for one in sequence.request.stop_ids if one < row.shape[0]], row)] = _NEVER
    if params.logit_bias:
        bias = torch.tensor(list(params.logit_bias.values()), dtype=row.dtype, device=row.device)
        row[_ids(list(params.logit_bias), row)] += bias
    if params.repetition_penalty != 1:
        seen = _ids(list({*sequence.request.prompt_ids, *output}), row)
        values = row[seen]
        row[seen] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if output and (params.presence_penalty or params.frequency_penalty):
        counts = Counter(output)
        times = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)
        row[_ids(list(counts), row)] -= params.frequency_penalty * times + params.presence_penalty


def _ids(ids: list[int], row: torch.Tensor) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64, device=row.device)


def score(logprobs: torch.Tensor, token_id: int, best: int) -> Score:
    """What the raw distribution [vocab] says of the id, and its `best` most likely candidates (-1: all)."""
    value = logprobs[token_id]
    chosen = Candidate(token_id, value.item(), int((logprobs > value).sum().item()) + 1)
    if best == 0:
        return Score(chosen, ())
    top = logprobs.topk(logprobs.shape[0] if best < 0 else min(best, logprobs.shape[0]))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Score(chosen, tuple(Candidate(token, logprob, rank) for rank, (token, logprob) in enumerate(pairs, start=1)))


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
        keys = [noise.stream_key(one.request.seed, one.index, one.length) for one in sequences]
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
        scaled = scaled.masked_fill_(scaled < limit, _NEVER)
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
    return values.masked_fill(values < limit, _NEVER), ids
