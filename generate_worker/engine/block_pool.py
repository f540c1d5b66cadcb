"""The blocks of the KV cache: which are free, who holds them, and what they hold. Numbers and hashes; the tensors are elsewhere.

A block is `BLOCK` positions of one sequence. When all of them are computed it is sealed under a hash of everything that its keys
and values depend on: the salt, every id before, and its own. A sequence that begins alike takes the same block instead of computing
it (so what it gets is what it would have computed). Free blocks keep what they hold until they are needed, the longest unused
first.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

BLOCK = 16
"""Positions of a block."""

NULL = 0
"""A block that is never given out. It holds zeros, and fills the places of a block table that nobody looks at."""


class BlockPool:
    """`size` blocks to give out, numbered from 1. A block that is held by several sequences is sealed, so nobody writes to it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders = [0] * (size + 1)
        self._hashes: dict[int, bytes] = {}
        self._sealed: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, size + 1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return self.size - len(self._free)

    @property
    def cached(self) -> int:
        """Free blocks that still hold something to reuse."""
        return sum(block in self._hashes for block in self._free)

    def find(self, hashes: Iterable[bytes]) -> list[int]:
        """The sealed blocks of the longest beginning that is known."""
        found = []
        for digest in hashes:
            block = self._sealed.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of the blocks nobody holds."""
        return sum(not self._holders[block] for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """One holder more for each."""
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Free blocks to write to; what they held is forgotten. There must be as many."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
            self._forget(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less for each block of a sequence. Its last one is the least likely to be of use, so the first to go."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None
                self._free.move_to_end(block, last=block in self._hashes)

    def seal(self, block: int, digest: bytes) -> None:
        """All positions of the block are computed. Where another block holds the same already, that one stays to be found."""
        if digest not in self._sealed:
            self._sealed[digest] = block
            self._hashes[block] = digest

    def discard(self, blocks: Iterable[int]) -> list[int]:
        """Those of the blocks that nobody holds are found no more. Returns them."""
        idle = [block for block in dict.fromkeys(blocks) if not self._holders[block]]
        for block in idle:
            self._forget(block)
        return idle

    def _forget(self, block: int) -> None:
        digest = self._hashes.pop(block, None)
        if digest is not None:
            del self._sealed[digest]


class Chain:
    """The hashes of a sequence's blocks, each over the one before. `salt` keeps apart what must not be shared."""

    __slots__ = ("_hashes", "_root")

    def __init__(self, salt: str) -> None:
        self._root = hashlib.blake2b(salt.encode(), digest_size=32).digest()
        self._hashes: list[bytes] = []

    def upto(self, count: int, ids: Sequence[int]) -> list[bytes]:
        """Those of the first `count` blocks of `ids`, which begin as at the last call."""
        while len(self._hashes) < count:
            start = len(self._hashes) * BLOCK
            before = self._hashes[-1] if self._hashes else self._root
            own = array("q", ids[start : start + BLOCK]).tobytes()
            self._hashes.append(hashlib.blake2b(before + own, digest_size=32).digest())
        return self._hashes[:count]


def blocks_for(tokens: int) -> int:
    """How many blocks hold so many positions."""
    return -(-tokens // BLOCK)
