"""Attention over one step's batch, plugged into transformers' models as an attention implementation of our own.

A step is one packed row of tokens: first one token of each decoding choice, then the chunks of prompts under prefill. All layers
but attention work on it as on any sequence; here it is taken apart again. Each token's key and value are written to its place in
the cache, then the decoding tokens attend in one batch and every chunk by itself.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from generate_worker.engine.kv_cache import KVCache

NAME = "tandem"

_UNUSED = frozenset(
    {"dropout", "position_ids", "use_cache", "output_attentions", "is_causal", "cache_position", "past_key_values", "cache"}
)
"""What models pass along that has no bearing on inference over a cache of our own."""


class UnsupportedAttention(ValueError):
    """The model asks attention for something that is not done here."""


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """`count` tokens from `offset` of the packed row: positions `start`.. of the cache row `row`."""

    row: int
    start: int
    offset: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(slots=True)
class PackedStep:
    """Where the packed tokens belong. `positions`: int64 [1, tokens], each token's place in its sequence; the first `decodes` of
    them are decoding choices, in rows 0.. of the cache.

    `longest` and `ragged` describe the decoding rows with their new token. Masks are made once a step, for all layers that share
    a window, and kept in `masks`. `windows` notes the sliding window that each layer asked for.
    """

    cache: KVCache
    positions: torch.Tensor
    decodes: int
    longest: int
    ragged: bool
    chunks: list[PackedChunk]
    masks: dict[Any, torch.Tensor] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)

    @property
    def decode_positions(self) -> torch.Tensor:
        return self.positions[0, : self.decodes]


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
    heads, tokens, dim = query.shape[1], query.shape[2], values.shape[-1]
    parts = []
    if step.decodes:
        parts.append(_decode(step, query[0, :, : step.decodes], keys, values, sliding_window, special))
    for chunk in step.chunks:
        parts.append(
            _prefill(step, chunk, query[:, :, chunk.offset : chunk.offset + chunk.count], keys, values, sliding_window, special)
        )
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    return joined.view(1, tokens, heads, dim), None


@dataclass(frozen=True, slots=True)
class _Special:
    scaling: float | None
    softcap: float | None
    sinks: torch.Tensor | None


def _write(step: PackedStep, stored: torch.Tensor, new: torch.Tensor) -> None:
    count = step.decodes
    if count:
        rows = step.masks.get("rows")
        if rows is None:
            rows = step.masks["rows"] = torch.arange(count, device=stored.device)
        stored[rows, :, step.decode_positions] = new[0, :, :count].transpose(0, 1)
    for chunk in step.chunks:
        stored[chunk.row, :, chunk.start : chunk.end] = new[0, :, chunk.offset : chunk.offset + chunk.count]


def _decode(
    step: PackedStep, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None, special: _Special
) -> torch.Tensor:
    """`query` [heads, d, dim] -> [d, heads * dim]. Queries of one kv head stand as its sequence, so no key is ever repeated."""
    heads, count, dim = query.shape
    groups = query.transpose(0, 1).reshape(count, keys.shape[1], heads // keys.shape[1], dim)
    out = _attend(
        groups, keys[:count, :, : step.longest], values[:count, :, : step.longest], _decode_mask(step, window, query.dtype), special
    )
    return out.reshape(count, -1)


def _decode_mask(step: PackedStep, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Additive, [d, 1, 1, longest]; None where every row sees all of it."""
    if not step.ragged and (window is None or window >= step.longest):
        return None
    if ("decode", window) not in step.masks:
        places = torch.arange(step.longest, device=step.decode_positions.device)
        last = step.decode_positions[:, None]
        hidden = places > last
        if window is not None:
            hidden |= places <= last - window
        step.masks["decode", window] = _additive(hidden, dtype)[:, None, None]
    return step.masks["decode", window]


def _prefill(
    step: PackedStep,
    chunk: PackedChunk,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    window: int | None,
    special: _Special,
) -> torch.Tensor:
    """`query` [1, heads, count, dim] -> [count, heads * dim]."""
    heads, count, dim = query.shape[1:]
    row_keys, row_values = keys[chunk.row, None, :, : chunk.end], values[chunk.row, None, :, : chunk.end]
    if chunk.start == 0 and (window is None or window >= count) and special.softcap is None and special.sinks is None:
        out = scaled_dot_product_attention(query, row_keys, row_values, is_causal=True, scale=special.scaling, enable_gqa=True)
    else:
        kv_heads = keys.shape[1]
        groups = query.reshape(1, kv_heads, heads // kv_heads * count, dim)
        out = _attend(groups, row_keys, row_values, _chunk_mask(step, chunk, heads // kv_heads, window, query.dtype), special)
    return out.reshape(heads, count, -1).transpose(0, 1).reshape(count, -1)


def _chunk_mask(step: PackedStep, chunk: PackedChunk, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Additive, [group * count, end]: the same causal block for each query head of a kv head."""
    if (chunk, window) not in step.masks:
        device = step.decode_positions.device
        places = torch.arange(chunk.end, device=device)
        own = torch.arange(chunk.start, chunk.end, device=device)[:, None]
        hidden = places > own
        if window is not None:
            hidden |= places <= own - window
        step.masks[chunk, window] = _additive(hidden, dtype).repeat(group, 1)
    return step.masks[chunk, window]


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, special: _Special
) -> torch.Tensor:
    """[batch, kv_heads, queries, dim] each; scores in float32 where the fused kernels cannot serve."""
    if special.softcap is None and special.sinks is None:
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=special.scaling)
    scale = query.shape[-1] ** -0.5 if special.scaling is None else special.scaling
    scores = (query @ keys.transpose(-1, -2)).float() * scale
    if special.softcap is not None:
        scores = torch.tanh(scores / special.softcap) * special.softcap
    if mask is not None:
        scores = scores + mask
    if special.sinks is None:
        return scores.softmax(-1).to(values.dtype) @ values
    sinks = special.sinks.float().view(1, keys.shape[1], -1, 1)
    sinks = sinks.repeat_interleave(query.shape[2] // sinks.shape[2], dim=2).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1].to(values.dtype) @ values


AttentionInterface.register(NAME, attention)
