"""What computes a step: token ids at their positions in, logits out, keys and values kept in blocks."""

from dataclasses import dataclass
from typing import Protocol

import torch

from generate_worker.engine.block_pool import BLOCK


@dataclass(frozen=True, slots=True)
class Span:
    """`count` tokens from `offset` of the packed row on, positions `start`.. of the sequence whose block table is `table`."""

    table: list[int]
    start: int
    offset: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    def slots(self) -> list[int]:
        """Where its tokens are stored, counting positions through all blocks."""
        return [self.table[place // BLOCK] * BLOCK + place % BLOCK for place in range(self.start, self.end)]


class Network(Protocol):
    """A model that is ready to serve. `windows` tells the sliding window that each layer of the last step had, by its index."""

    windows: dict[int, int | None]

    @property
    def bytes_per_token(self) -> int:
        """What a position takes in the cache."""

    def allocate(self, blocks: int) -> None:
        """Makes the cache, in place of any before. Raises `RuntimeError` or `OSError` where memory is short."""

    def forward(self, decodes: list[Span], chunks: list[Span], ids: list[int], kept: list[int]) -> torch.Tensor:
        """Float32 [kept, vocab]: the logits at the places `kept` of the packed `ids`. These are of `decodes`, spans of one token in
        the order of their positions, then of `chunks`; offsets follow each other."""

    def scrub(self, blocks: list[int]) -> None:
        """Takes what may be no numbers out of the cache, where it could harm who gets these blocks next."""
