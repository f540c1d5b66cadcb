"""Keys and values of every position already computed, in the blocks that `block_pool` gives out: one pair of tensors a layer."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from generate_worker.engine.block_pool import BLOCK


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores a position."""

    kv_heads: int
    key_dim: int
    value_dim: int

    def bytes_for(self, dtype: torch.dtype) -> int:
        """Of one position."""
        return self.kv_heads * (self.key_dim + self.value_dim) * dtype.itemsize


class KVCache:
    """Tensors are [blocks, BLOCK, kv_heads, head_dim]: a block's positions lie together, so that whole blocks are copied.

    `blocks` counts those to give out; there is one more, `block_pool.NULL`.
    """

    def __init__(self, shapes: list[LayerShape], blocks: int, dtype: torch.dtype, device: torch.device) -> None:
        def zeros(heads: int, dim: int) -> torch.Tensor:
            # Zeros, not whatever memory held: a masked position counts with weight 0, and 0 times NaN would be NaN.
            return torch.zeros((blocks + 1, BLOCK, heads, dim), dtype=dtype, device=device)

        self.layers = [(zeros(one.kv_heads, one.key_dim), zeros(one.kv_heads, one.value_dim)) for one in shapes]

    def scrub(self, blocks: Iterable[int]) -> None:
        """Zeros in place of what may not be numbers: even masked, it would spoil whoever gets these blocks next."""
        places = list(blocks)
        for pair in self.layers:
            for tensor in pair:
                tensor[places] = 0
