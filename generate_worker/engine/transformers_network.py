"""Any causal model of transformers with the usual attention, computed layer by layer as there, but over blocks of a KV cache."""

from typing import Any

import torch

from generate_worker.engine import attention, packed_linear
from generate_worker.engine.attention import PackedStep
from generate_worker.engine.kv_cache import KVCache, LayerShape
from generate_worker.engine.network import Span


class TransformersNetwork:
    """Replaces the model's attention, and its linear layers on a CPU that gains by it."""

    def __init__(self, model: Any, shapes: list[LayerShape]) -> None:
        self._model = model
        self._shapes = shapes
        self._device: torch.device = model.device
        self._dtype: torch.dtype = model.dtype
        self.windows: dict[int, int | None] = {}
        model.set_attn_implementation(attention.NAME)
        if self._device.type == "cpu":
            packed_linear.pack(model)

    @property
    def bytes_per_token(self) -> int:
        return sum(shape.bytes_for(self._dtype) for shape in self._shapes)

    def allocate(self, blocks: int) -> None:
        self._cache = KVCache(self._shapes, blocks, self._dtype, self._device)

    def scrub(self, blocks: list[int]) -> None:
        self._cache.scrub(blocks)

    def forward(self, decodes: list[Span], chunks: list[Span], ids: list[int], kept: list[int]) -> torch.Tensor:
        step = PackedStep.of(self._cache, decodes, chunks, self._device)
        # Never a single row, neither in the layers nor in the last one: see `packed_linear`.
        spare = [0] * max(0, packed_linear.MIN_ROWS - len(ids))
        wanted = kept + [0] * max(0, packed_linear.MIN_ROWS - len(kept))
        places = [place for span in (*decodes, *chunks) for place in range(span.start, span.end)]
        output = self._model(
            input_ids=torch.tensor([ids + spare], device=self._device),
            position_ids=torch.tensor([places + spare], device=self._device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.int64, device=self._device),
            tandem_step=step,
        )
        self.windows = step.windows
        logits: torch.Tensor = output.logits[0, : len(kept)]
        return logits.float()
