"""Attention over one step's batch, plugged into transformers' models as an attention implementation of our own.

A step is one packed row of tokens: first one token of each decoding sequence, then chunks of those under prefill. All layers but
attention work on it as on any sequence; here it is taken apart again. Each token's key and value are written to its place in the
cache, then every sequence attends to the blocks of its table.

What a token's attention comes to depends on its own sequence alone, to the last bit, where the kernels allow it. Two numbers change
the order in which they sum up. How many keys a query is given, masked ones included, is therefore a function of its position alone
(`keys_for`), whether it is decoded or part of a chunk, whoever else is in the batch. And queries never come in smaller numbers than
those for which the processor has kernels of another kind (`_least_queries`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from generate_worker.engine.block_pool import BLOCK, NULL
from generate_worker.engine.kv_cache import KVCache
from generate_worker.engine.network import Span

NAME = "tandem"

STRIDE = 64
"""Positions. Keys are given in multiples of it, and queries of one multiple together."""

_UNUSED = frozenset(
    {"dropout", "position_ids", "use_cache", "output_attentions", "is_causal", "cache_position", "past_key_values", "cache"}
)
"""What models pass along that has no bearing on inference over a cache of our own."""


class UnsupportedAttention(ValueError):
    """The model asks attention for something that is not done here."""


def keys_for(position: int) -> int:
    """How many keys a query at this position is given."""
    return (position // STRIDE + 1) * STRIDE


@dataclass(frozen=True, slots=True)
class Rows:
    """Queries that attend together: `batch` sequences with `count` queries each, all given `keys` keys.

    `tables`: int64 [batch, keys / BLOCK]; `positions`: int64 [batch, count], of the queries, which begin at `offset` of the packed
    row.
    """

    offset: int
    count: int
    keys: int
    tables: torch.Tensor
    positions: torch.Tensor

    @property
    def batch(self) -> int:
        return self.positions.shape[0]

    def hidden(self, window: int | None) -> torch.Tensor:
        """Which keys each query must not see: bool [batch, count, keys]."""
        places = torch.arange(self.keys, device=self.positions.device)
        own = self.positions[..., None]
        hidden = places > own
        return hidden if window is None else hidden | (places <= own - window)


@dataclass(slots=True)
class PackedStep:
    """Where the packed tokens belong. `slots`: int64 [tokens]; rows beyond them are there to be computed and forgotten.

    `rows` cover the tokens in their order. Masks are made once a step, for all layers that share a window, and kept in `masks`.
    `windows` notes the sliding window that each layer asked for.
    """

    cache: KVCache
    slots: torch.Tensor
    rows: list[Rows]
    masks: dict[Any, torch.Tensor] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, cache: KVCache, decodes: list[Span], chunks: list[Span], device: torch.device) -> "PackedStep":
        """`decodes` are spans of one token, in the order of their positions, then `chunks`; their offsets follow each other."""
        slots = [slot for span in [*decodes, *chunks] for slot in span.slots()]
        rows = [_decoding(list(group), device) for _, group in groupby(decodes, key=lambda one: keys_for(one.start))]
        rows += [part for chunk in chunks for part in _parts(chunk, device)]
        return cls(cache, torch.tensor(slots, dtype=torch.int64, device=device), rows)

    def mask(self, index: int, window: int | None, dtype: torch.dtype, groups: int, spare: int) -> torch.Tensor:
        """Additive, [batch, 1, queries, keys]: the same for each of a kv head's `groups` query heads, and for `spare` queries more
        anything. One query a sequence needs one row, whatever stands for `queries`."""
        found = self.masks.get((index, window, groups, spare))
        if found is None:
            rows = self.rows[index]
            hidden = rows.hidden(window)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
            if rows.count > 1:
                mask = pad(mask.repeat(1, groups, 1), (0, 0, 0, spare))
            found = self.masks[index, window, groups, spare] = mask[:, None]
        return found


def _decoding(spans: list[Span], device: torch.device) -> Rows:
    keys = keys_for(spans[0].start)
    tables = torch.tensor([_padded(span.table, keys) for span in spans], device=device)
    return Rows(spans[0].offset, 1, keys, tables, torch.tensor([[span.start] for span in spans], device=device))


def _parts(chunk: Span, device: torch.device) -> Iterator[Rows]:
    """A chunk, cut where its queries are given more keys. On a GPU one call is worth more than the last bit."""
    start = chunk.start
    while start < chunk.end:
        keys = keys_for(start) if device.type == "cpu" else keys_for(chunk.end - 1)
        end = min(chunk.end, keys)
        positions = torch.arange(start, end, device=device)[None]
        tables = torch.tensor([_padded(chunk.table, keys)], device=device)
        yield Rows(chunk.offset + start - chunk.start, end - start, keys, tables, positions)
        start = end


def _padded(table: list[int], keys: int) -> list[int]:
    count = keys // BLOCK
    return table[:count] + [NULL] * (count - len(table))


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tandem_step: PackedStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """`query` [1, heads, tokens, dim], `key` and `value` [1, kv_heads, tokens, dim] of the step -> [1, tokens, heads, dim].

    `softcap` bounds the scores (Gemma 2), `s_aux` are attention sinks, one a head (gpt-oss).
    """
    unknown = [name for name, given in others.items() if name not in _UNUSED and given is not None and given is not False]
    if unknown or attention_mask is not None:
        raise UnsupportedAttention(f"its attention takes {', '.join(unknown) or 'a mask of its own'}")
    step, layer = tandem_step, module.layer_idx
    assert isinstance(layer, int)
    step.windows[layer] = sliding_window
    keys, values = step.cache.layers[layer]
    _write(step, keys, key)
    _write(step, values, value)
    special = _Special(scaling, softcap, s_aux)
    out = value.new_zeros((query.shape[2], query.shape[1], value.shape[3]))
    for index, rows in enumerate(step.rows):
        end = rows.offset + rows.batch * rows.count
        out[rows.offset : end] = _rows(step, index, query[0, :, rows.offset : end], keys, values, sliding_window, special)
    return out[None], None


@dataclass(frozen=True, slots=True)
class _Special:
    """`sinks`: one a query head as the model has them, one a query [kv_heads, queries] in `_attend`."""

    scaling: float | None
    softcap: float | None
    sinks: torch.Tensor | None


def _write(step: PackedStep, stored: torch.Tensor, new: torch.Tensor) -> None:
    count = step.slots.shape[0]
    stored.view(-1, *stored.shape[2:]).index_copy_(0, step.slots, new[0, :, :count].transpose(0, 1))


def _rows(
    step: PackedStep,
    index: int,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    window: int | None,
    special: _Special,
) -> torch.Tensor:
    """`query` [heads, batch * count, dim] -> [batch * count, heads, dim]. The queries of one kv head stand as its sequence, so no
    key is ever repeated."""
    rows = step.rows[index]
    heads, _, dim = query.shape
    kv_heads = keys.shape[2]
    groups = heads // kv_heads
    grouped = query.view(kv_heads, groups, rows.batch, rows.count, dim).permute(2, 0, 1, 3, 4)
    queries = groups * rows.count
    spare = -queries % _least_queries(dim, query.device)
    mask = step.mask(index, window, query.dtype, groups, spare)
    padded = pad(grouped.reshape(rows.batch, kv_heads, queries, dim), (0, 0, 0, spare))
    sinks = None if special.sinks is None else pad(special.sinks.view(kv_heads, -1).repeat_interleave(rows.count, 1), (0, spare))
    out = _attend(
        padded,
        _gathered(keys, rows.tables),
        _gathered(values, rows.tables),
        mask,
        _Special(special.scaling, special.softcap, sinks),
    )
    split = out[:, :, :queries].reshape(rows.batch, kv_heads, groups, rows.count, -1).permute(0, 3, 1, 2, 4)
    return split.reshape(rows.batch * rows.count, heads, -1)


def _least_queries(dim: int, device: torch.device) -> int:
    """Of heads of this size. Queries are filled up to a multiple of it."""
    if device.type != "cpu":
        return 1
    return 8 if dim <= 128 else 16


def _gathered(stored: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """[batch, kv_heads, keys, dim] of the blocks in `tables`."""
    batch, blocks = tables.shape
    found = stored.view(stored.shape[0], -1).index_select(0, tables.view(-1))
    return found.view(batch, blocks * BLOCK, *stored.shape[2:]).transpose(1, 2)


def _attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, special: _Special) -> torch.Tensor:
    """[batch, kv_heads, queries, dim] each; scores in float32 where the fused kernels cannot serve."""
    if special.softcap is None and special.sinks is None:
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=special.scaling)
    scale = query.shape[-1] ** -0.5 if special.scaling is None else special.scaling
    scores = (query @ keys.transpose(-1, -2)).float() * scale
    if special.softcap is not None:
        scores = torch.tanh(scores / special.softcap) * special.softcap
    scores = scores + mask
    if special.sinks is None:
        return scores.softmax(-1).to(values.dtype) @ values
    sinks = special.sinks.float()[None, ..., None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1].to(values.dtype) @ values


AttentionInterface.register(NAME, attention)
