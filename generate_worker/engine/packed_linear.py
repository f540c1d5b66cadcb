"""Linear layers with their weights laid out for the processor once, not at every call (CPU only).

A few tokens at a time are then up to twice as fast. And a row's result does not depend on the other rows, to the last bit, where
these layouts hold what they were chosen for: elsewhere the library takes another kernel, with another order of summing up, for each
number of rows. The runner looks whether they do (`ModelRunner.batch_invariant`).
"""

from dataclasses import dataclass

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

    def __init__(self, linear: torch.nn.Linear, layout: Layout) -> None:
        super().__init__()
        self._most = layout.most
        # No parameter: an opaque layout that nothing but the call below can read.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), layout.made_for)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-2] > self._most:
            return torch.cat([self._computed(part) for part in torch.split(x, self._most, -2)], -2)
        return self._computed(x)

    def _computed(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


def pack(model: torch.nn.Module) -> None:
    """Replaces every linear layer of a model on the CPU. An output layer that shares its weight with the embeddings gets a copy."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear) and type(child) is torch.nn.Linear and child.weight.dtype in _LAYOUTS:
                setattr(module, name, PackedLinear(child, _LAYOUTS[child.weight.dtype]))
