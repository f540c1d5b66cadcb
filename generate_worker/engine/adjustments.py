"""What a request's parameters do to its logits before a token is chosen: masks, bias and penalties, for a whole batch at once.

The order is vLLM's: the structure that the output must have, allowed ids, banned sequences, minimum length and bias, penalties.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from generate_worker.engine.sequence import Sequence
from protocol.sampling import SamplingParams

NEVER = float("-inf")


def adjust(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    """Float32 [batch, vocab], in place; row i is that of `sequences[i]`."""
    for row, sequence in enumerate(sequences):
        _allow_only(logits[row], sequence)
    _forbid(logits, sequences)
    _bias(logits, sequences)
    _penalise(logits, sequences)


def _allow_only(row: torch.Tensor, sequence: Sequence) -> None:
    mask = sequence.grammar.allowed() if sequence.grammar is not None else None
    if mask is not None:
        row.masked_fill_(~_bits(mask, row), NEVER)
    allowed = sequence.request.params.allowed_token_ids
    if allowed:
        ids = torch.tensor(allowed, dtype=torch.int64, device=row.device)
        kept = row[ids]
        row.fill_(NEVER)
        row[ids] = kept


def _bits(mask: bytes, row: torch.Tensor) -> torch.Tensor:
    """Bool [vocab] of a bit for each id, the lowest of each byte first."""
    packed = torch.frombuffer(bytearray(mask), dtype=torch.uint8).to(row.device)
    bits = (packed[:, None] >> torch.arange(8, device=row.device)).bitwise_and_(1).view(-1).bool()[: row.shape[0]]
    return torch.nn.functional.pad(bits, (0, row.shape[0] - bits.shape[0]))


@dataclass(slots=True)
class _Places:
    """Single logits of a batch, with a number for each."""

    rows: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, row: int, ids: Iterable[int], value: float = 0.0) -> None:
        for token_id in ids:
            self.rows.append(row)
            self.ids.append(token_id)
            self.values.append(value)

    def tensors(self, logits: torch.Tensor) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
        device = logits.device
        places = torch.tensor(self.rows, device=device), torch.tensor(self.ids, device=device)
        return places, torch.tensor(self.values, dtype=logits.dtype, device=device)


def _forbid(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    places = _Places()
    for row, sequence in enumerate(sequences):
        params = sequence.request.params
        for banned in params.bad_words_token_ids or ():
            if sequence.ends_with(banned[:-1]):
                places.add(row, banned[-1:])
        if sequence.output_length < params.min_tokens:
            places.add(row, (one for one in sequence.request.late_ids if one < logits.shape[1]))
    if places.ids:
        logits[places.tensors(logits)[0]] = NEVER


def _bias(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    places = _Places()
    for row, sequence in enumerate(sequences):
        for token_id, bias in (sequence.request.params.logit_bias or {}).items():
            places.add(row, (token_id,), bias)
    if places.ids:
        where, bias_values = places.tensors(logits)
        logits[where] += bias_values


def _penalise(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    repeated, counted = _Places(), _Places()
    for row, sequence in enumerate(sequences):
        params = sequence.request.params
        if params.repetition_penalty != 1:
            repeated.add(row, sequence.prompt_set | sequence.counts.keys(), params.repetition_penalty)
        if params.frequency_penalty or params.presence_penalty:
            for token_id, times in sequence.counts.items():
                counted.add(row, (token_id,), params.frequency_penalty * times + params.presence_penalty)
    if repeated.ids:
        where, penalty = repeated.tensors(logits)
        found = logits[where]
        logits[where] = torch.where(found > 0, found / penalty, found * penalty)
    if counted.ids:
        where, amount = counted.tensors(logits)
        logits[where] -= amount


def needed(sequence: Sequence) -> bool:
    """Whether anything is done to its row."""
    return sequence.grammar is not None or _adjusts(sequence.request.params)


def _adjusts(params: SamplingParams) -> bool:
    return bool(
        params.min_tokens
        or params.logit_bias
        or params.allowed_token_ids
        or params.bad_words_token_ids
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1
    )
