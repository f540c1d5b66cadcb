"""Linear layers with their weights laid out for the processor once, not at every call (CPU only).

A few tokens at a time are then up to twice as fast; layers with the same input are computed in one call. And a row's result does
not depend on the other rows, to the last bit, where these layouts hold what they were chosen for: elsewhere the library takes
another kernel, with another order of summing up, for each number of rows. The runner looks whether they do
(`ModelRunner.batch_invariant`).
"""

from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

MIN_ROWS = 2
"""One row alone may come out otherwise, so the runner never computes less."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`made_for` rows, which the library takes as a hint; it serves others as well. `most` rows are computed in one call."""

    made_for: int
    most: int


_LAYOUTS = {torch.float32: Layout(256, 1 << 20), torch.bfloat16: Layout(1, 128)}


class PackedLinear(torch.nn.Module):
    """Stands for a `torch.nn.Linear`, whose weight it takes over: [..., rows, in] -> [..., rows, out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, layout: Layout) -> None:
        super().__init__()
        self._most = layout.most
        # No parameter: an opaque layout that nothing but the call below can read.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), layout.made_for)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-2] > self._most:
            return torch.cat([self._computed(part) for part in torch.split(x, self._most, -2)], -2)
        return self._computed(x)

    def _computed(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


class _Joint:
    """Several layers that are given the same input, computed in one call when the first of them is."""

    def __init__(self, layers: list[torch.nn.Linear], layout: Layout) -> None:
        bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
        self._all = PackedLinear(torch.cat([layer.weight for layer in layers]), bias, layout)
        self._sizes = [layer.out_features for layer in layers]
        self._input: torch.Tensor | None = None
        self._outputs: dict[int, torch.Tensor] = {}

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        if x is not self._input or index not in self._outputs:
            self._input, self._outputs = x, dict(enumerate(torch.split(self._all(x), self._sizes, -1)))
        found = self._outputs.pop(index)
        if not self._outputs:
            self._input = None
        return found


class JointLinear(torch.nn.Module):
    """One of the layers of a `_Joint`."""

    def __init__(self, joint: _Joint, index: int) -> None:
        super().__init__()
        self._joint, self._index = joint, index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._joint.part(self._index, x)


_SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that one module calls with one tensor, by the names that they have in transformers."""


def pack(model: Any) -> None:
    """Replaces every linear layer of a model on the CPU. An output layer that shares its weight with the embeddings gets a copy."""
    if not _gains(model.dtype):
        return
    for module in list(model.modules()):
        linear = {name: child for name, child in module.named_children() if _packable(child)}
        for names in _SAME_INPUT:
            layers = [linear[name] for name in names if name in linear]
            if len(layers) == len(names) and len({(one.in_features, one.bias is None) for one in layers}) == 1:
                joint = _Joint(layers, _LAYOUTS[layers[0].weight.dtype])
                for index, name in enumerate(names):
                    setattr(module, name, JointLinear(joint, index))
                    del linear[name]
        for name, child in linear.items():
            setattr(module, name, PackedLinear(child.weight, child.bias, _LAYOUTS[child.weight.dtype]))


def _gains(dtype: torch.dtype) -> bool:
    """Whether the library has such layouts for this processor."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packable(module: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    return type(module) is torch.nn.Linear and module.weight.dtype in _LAYOUTS
