"""What bounds a step of the engine: how long one takes, and how long the machine would need at best."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from generate_worker.engine.block_pool import BLOCK, blocks_for
from generate_worker.engine.model_runner import ModelRunner
from generate_worker.engine.native import memory
from generate_worker.engine.network import Span

CONTEXT = 160
"""Tokens that each stream has behind it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What it does at best: bytes read and float32 operations, per second."""

    bandwidth: float
    arithmetic: float

    @classmethod
    def measured(cls) -> "Machine":
        (large,) = memory.tensors([2**27], torch.float32)
        square = torch.randn(2048, 2048)
        read = _fastest(large.sum)
        computed = _fastest(lambda: square @ square)
        return cls(large.nbytes / read, 2 * 2048**3 / computed)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one decode step of so many streams: as it is, as reading its weights, keys and values alone would take, and as its
    arithmetic alone would."""

    streams: int
    forward: float
    reading: float
    computing: float


class Decoding:
    """A model in this process. `weights` counts those that a token is multiplied with."""

    def __init__(self, model: torch.nn.Module, machine: Machine) -> None:
        self._machine = machine
        linear = [one.weight for one in model.modules() if isinstance(one, torch.nn.Linear)]
        self._weights = sum(one.numel() for one in linear)
        self._itemsize = linear[0].dtype.itemsize
        self._runner = ModelRunner(model)
        self._runner.allocate(1024)

    @torch.inference_mode()
    def step(self, streams: int) -> Step:
        per = blocks_for(CONTEXT)
        spans = [Span(list(range(1 + i * per, 1 + (i + 1) * per)), CONTEXT - 1, i, 1) for i in range(streams)]
        taken = [_timed(lambda: self._runner.network.forward(spans, [], [5] * streams, list(range(streams)))) for _ in range(25)]
        read = self._weights * self._itemsize + streams * per * BLOCK * self._runner.bytes_per_token
        operations = 2 * self._weights * streams
        return Step(streams, statistics.median(taken[5:]), read / self._machine.bandwidth, operations / self._machine.arithmetic)


def _fastest(work: Callable[[], object]) -> float:
    return min(_timed(work) for _ in range(8))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
