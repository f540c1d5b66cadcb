"""How much memory the KV cache may take, where nobody says."""

from pathlib import Path

import torch

from generate_worker.engine.block_pool import BLOCK, blocks_for

_CPU_SHARE, _CPU_MOST = 0.25, 4 * 2**30
"""Of the memory that is free, and in bytes: other processes live on this machine too."""
_CUDA_SHARE = 0.85
"""Of the memory that is free once the model is loaded. The rest is for what a step needs."""


def budget(device: torch.device) -> int:
    """Bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * _CUDA_SHARE)
    return min(int(_available() * _CPU_SHARE), _CPU_MOST)


def blocks(memory: int, bytes_per_token: int, *, longest: int, seqs: int) -> int:
    """How many blocks fit `memory` bytes, and are of any use: `seqs` sequences of `longest` tokens need no more."""
    return min(memory // (bytes_per_token * BLOCK), blocks_for(longest) * seqs)


def _available() -> int:
    """Bytes that this process may still take: of the machine, or of its control group where that has a limit."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            free = min(free, int(limit) - int((group / "memory.current").read_text()))
    except OSError:
        pass  # no control group, or one of an older kind
    return max(free, 0)
