"""Memory for what every step reads from end to end: in large pages where the system has them, which saves looking addresses up."""

import mmap

import torch


def tensors(sizes: list[int], dtype: torch.dtype) -> list[torch.Tensor]:
    """Flat tensors of so many zeros, one behind the other, each from a cache line on. Raises `OSError` where memory is short."""
    line = 64 // dtype.itemsize
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // line) * line)
    area = mmap.mmap(-1, max(1, starts[-1] * dtype.itemsize))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=dtype)
    return [whole[start : start + size] for start, size in zip(starts, sizes, strict=False)]
