"""Log probabilities of tokens, and of the best candidates beside them, in the raw distribution."""

import torch

from generate_worker.engine.base import Candidate, Score

_ROWS = 32
"""Rows that are looked at at once: each takes several times its logits' memory."""


def scores(logits: torch.Tensor, token_ids: list[int], best: list[int]) -> list[Score]:
    """For each row of `logits` [rows, vocab] what it says of a token, and of its `best` most likely candidates (-1: of all)."""
    found: list[Score] = []
    for start in range(0, len(token_ids), _ROWS):
        part = slice(start, start + _ROWS)
        found += _scores(logits[part], token_ids[part], best[part])
    return found


def _scores(logits: torch.Tensor, token_ids: list[int], best: list[int]) -> list[Score]:
    logprobs = logits.log_softmax(-1)
    values = logprobs.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = ((logprobs > values).sum(-1) + 1).tolist()
    vocabulary = logits.shape[1]
    wanted = [vocabulary if count < 0 else min(count, vocabulary) for count in best]
    top = logprobs.topk(max(wanted))
    found = []
    rows = zip(token_ids, values[:, 0].tolist(), ranks, wanted, top.indices, top.values, strict=True)
    for token_id, value, rank, count, ids, logprob in rows:
        pairs = zip(ids[:count].tolist(), logprob[:count].tolist(), strict=True)
        candidates = tuple(Candidate(one, own, place) for place, (one, own) in enumerate(pairs, start=1))
        found.append(Score(Candidate(token_id, value, rank), candidates))
    return found
