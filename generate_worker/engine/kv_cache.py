"""Keys and values of every position already computed: one row a choice, one pair of tensors a layer.

Tensors are [rows, kv_heads, capacity, head_dim]. The capacity follows the longest sequence, doubling, and is given back when the
cache has been empty; rows are kept compact by the scheduler, so that a batch is a slice and never a copy.
"""

from dataclasses import dataclass

import torch

from generate_worker.engine.scheduler import Move

_SMALLEST = 256
"""Positions a row has at least, so that short requests never make the cache grow."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores a position."""

    kv_heads: int
    key_dim: int
    value_dim: int


class KVCache:
    """`max_tokens` bounds the capacity of a row."""

    def __init__(self, shapes: list[LayerShape], rows: int, max_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shapes, self._rows, self._max_tokens = shapes, rows, max_tokens
        self._dtype, self._device = dtype, device
        self.capacity = 0
        self.layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.clear()

    def clear(self) -> None:
        """Forgets everything, and gives memory beyond the smallest capacity back."""
        smallest = min(_SMALLEST, self._max_tokens)
        if self.capacity != smallest:
            self.capacity = smallest
            self.layers = []
            self.layers = [self._allocate(shape, smallest) for shape in self._shapes]

    def reserve(self, tokens: int) -> None:
        """Makes room for `tokens` positions in every row."""
        if tokens <= self.capacity:
            return
        old, new = self.capacity, min(max(tokens, 2 * self.capacity), self._max_tokens)
        for index, pair in enumerate(self.layers):  # a layer at a time, so that only one is held twice
            grown = self._allocate(self._shapes[index], new)
            for target, source in zip(grown, pair, strict=True):
                target[:, :, :old] = source[:, :, :old]
            self.layers[index] = grown
        self.capacity = new  # last: should memory run out before, the layers hold no less than this says

    def apply(self, moves: list[Move]) -> None:
        """Copies rows, in order."""
        for move in moves:
            for tensors in self.layers:
                for tensor in tensors:
                    tensor[move.target, :, : move.length] = tensor[move.source, :, : move.length]

    def _allocate(self, shape: LayerShape, capacity: int) -> tuple[torch.Tensor, torch.Tensor]:
        # Zeros, not whatever memory held: a masked position counts with weight 0, and 0 times NaN would be NaN.
        sizes = ((self._rows, shape.kv_heads, capacity, dim) for dim in (shape.key_dim, shape.value_dim))
        keys, values = (torch.zeros(size, dtype=self._dtype, device=self._device) for size in sizes)
        return keys, values
