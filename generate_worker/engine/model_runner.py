"""Runs one step of the model: a plan in, one row of logits for each choice that is due a token out."""

from typing import Any

import torch

from generate_worker.engine import attention
from generate_worker.engine.attention import PackedChunk, PackedStep
from generate_worker.engine.kv_cache import KVCache, LayerShape
from generate_worker.engine.scheduler import Move, Plan
from model_profile.errors import BrokenModel

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_PROBE_TOKENS = 12


class ModelRunner:
    """Owns the model and its KV cache. `rows` is how many choices the cache holds, `max_tokens` how long each may become.

    Raises `BrokenModel` for an architecture whose attention cannot be served; what it computes is compared with what transformers
    itself computes before the first request.
    """

    def __init__(self, model: Any, rows: int, max_tokens: int) -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self._refuse_unknown(model)
        with torch.inference_mode():
            shapes = self._observe(max_tokens)
            self.model.set_attn_implementation(attention.NAME)
            self._cache = KVCache(shapes, rows, max_tokens, self.dtype, self.device)
            self._verify(max_tokens)

    @torch.inference_mode()
    def run(self, plan: Plan) -> torch.Tensor:
        """Logits, float32 [rows, vocab]: the decoding choices in order, then each chunk that is its prompt's last."""
        cache = self._cache
        cache.reserve(max([*(one.computed + 1 for _, one in plan.decodes), *(c.start + len(c.token_ids) for c in plan.chunks)]))
        cache.apply(plan.moves)
        positions = [sequence.computed for _, sequence in plan.decodes]
        ids = [sequence.output_ids[-1] for _, sequence in plan.decodes]
        due = list(range(len(ids)))
        chunks = []
        for chunk in plan.chunks:
            chunks.append(PackedChunk(chunk.leader.slot, chunk.start, len(ids), len(chunk.token_ids)))
            ids += chunk.token_ids
            if chunk.last:
                due.append(len(ids) - 1)
        return self._forward(self._packed(positions, chunks), ids, due)

    @torch.inference_mode()
    def copy(self, moves: list[Move]) -> None:
        self._cache.apply(moves)

    @torch.inference_mode()
    def clear(self) -> None:
        """Nothing runs: memory that long sequences took is given back."""
        self._cache.clear()

    def _packed(self, decode_positions: list[int], chunks: list[PackedChunk]) -> PackedStep:
        places = [*decode_positions, *(place for chunk in chunks for place in range(chunk.start, chunk.end))]
        return PackedStep(
            cache=self._cache,
            positions=torch.tensor([places], dtype=torch.int64, device=self.device),
            decodes=len(decode_positions),
            longest=max(decode_positions, default=-1) + 1,
            ragged=len(set(decode_positions)) > 1,
            chunks=chunks,
        )

    def _forward(self, step: PackedStep, ids: list[int], due: list[int]) -> torch.Tensor:
        output = self.model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=step.positions,
            use_cache=False,
            logits_to_keep=torch.tensor(due, dtype=torch.int64, device=self.device),
            tandem_step=step,
        )
        logits: torch.Tensor = output.logits[0]
        return logits.float()

    def _refuse_unknown(self, model: Any) -> None:
        config = model.config.get_text_config()
        strange = sorted(set(getattr(config, "layer_types", None) or ()) - _KNOWN_LAYERS)
        name = type(model).__name__
        if strange:
            raise BrokenModel(f"{name} has layers of a kind that is not served: {', '.join(strange)}")
        if not type(model)._supports_attention_backend or getattr(config, "is_causal", True) is False:
            raise BrokenModel(f"{name} does not let its attention be replaced, so it cannot be served")

    def _probe_ids(self, max_tokens: int) -> torch.Tensor:
        return torch.arange(1, 1 + min(_PROBE_TOKENS, max_tokens), device=self.device)[None] * 7 % self.vocab_size

    def _observe(self, max_tokens: int) -> list[LayerShape]:
        """What each layer's attention stores, seen in one plain forward; its logits are kept for `_verify`."""
        output = self.model(input_ids=self._probe_ids(max_tokens), use_cache=True)
        self._expected: torch.Tensor = output.logits[0, -1].float()
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        return [LayerShape(one.keys.shape[1], one.keys.shape[3], one.values.shape[3]) for one in cache.layers]

    def _verify(self, max_tokens: int) -> None:
        """The same ids in two chunks and one decode step must give the same logits; else the model needs something unknown here."""
        ids = self._probe_ids(max_tokens)[0].tolist()
        cut, end = len(ids) // 2, len(ids) - 1
        steps = [self._packed([], [PackedChunk(0, a, 0, b - a)]) for a, b in ((0, cut), (cut, end)) if a < b]
        steps.append(self._packed([end], []))
        name = type(self.model).__name__
        try:
            for step in steps:
                logits = self._forward(step, [ids[place] for place in step.positions[0].tolist()], [0])[0]
        except (attention.UnsupportedAttention, TypeError, AttributeError, IndexError) as error:
            raise BrokenModel(f"{name} cannot be served: {error}") from error
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.1
        off = (logits - self._expected).abs().max() / self._expected.std().clamp(min=1e-6)
        if not off < tolerance:
            raise BrokenModel(f"{name} cannot be served: its logits come out otherwise than in transformers (off by {off:.2g})")
        self._check_windows(name, steps[-1].windows)

    def _check_windows(self, name: str, windows: dict[int, int | None]) -> None:
        # Too few ids were compared to feel a sliding window, so at least each layer that should have one must have asked for it.
        config = self.model.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        if kinds is None:
            kinds = ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"] * len(windows)
        for layer, kind in enumerate(kinds):
            if (kind == "sliding_attention") != (windows.get(layer) is not None):
                raise BrokenModel(f"{name} cannot be served: layer {layer} is {kind}, but asks attention for something else")
