"""What a model must show before the first request: that it computes here what it computes in transformers, and whether a sequence's
logits depend on who shares its steps."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

from generate_worker.engine.attention import UnsupportedAttention
from generate_worker.engine.block_pool import blocks_for
from generate_worker.engine.kv_cache import LayerShape
from generate_worker.engine.network import Network, Span
from model_profile.errors import BrokenModel

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_TOKENS = 12
_COMPANY = 50
"""Tokens that are computed beside them. More would make the start of a large model long."""

BLOCKS = blocks_for(_TOKENS) + blocks_for(_COMPANY)
"""What the cache must hold for it."""


class Trial:
    """Begins with a plain forward of the model as transformers runs it, which also shows what each layer's attention stores
    (`shapes`). Raises `BrokenModel` for an architecture whose attention cannot be replaced."""

    def __init__(self, model: Any) -> None:
        self._name = type(model).__name__
        self._config = model.config.get_text_config()
        self._refuse_unknown(model)
        ids = torch.arange(1, 1 + _TOKENS, device=model.device)[None] * 7 % model.get_output_embeddings().weight.shape[0]
        output = model(input_ids=ids, use_cache=True)
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        self.shapes = [LayerShape(one.keys.shape[1], one.keys.shape[3], one.values.shape[3]) for one in cache.layers]
        self._ids: list[int] = ids[0].tolist()
        self._expected: torch.Tensor = output.logits[0, -1].float()
        self._tolerance = 1e-3 if model.dtype == torch.float32 else 0.4

    def invariant(self, tried: Network) -> bool:
        """Whether logits are the same bits alone, in parts, in company. Raises `BrokenModel` where they are not transformers'."""
        alone = self._verified(tried)
        return all(torch.equal(alone, other) for other in self._otherwise(tried))

    def _refuse_unknown(self, model: Any) -> None:
        strange = sorted(set(getattr(self._config, "layer_types", None) or ()) - _KNOWN_LAYERS)
        if strange:
            raise BrokenModel(f"{self._name} has layers of a kind that is not served: {', '.join(strange)}")
        if not type(model)._supports_attention_backend or getattr(self._config, "is_causal", True) is False:
            raise BrokenModel(f"{self._name} does not let its attention be replaced, so it cannot be served")

    def _verified(self, tried: Network) -> torch.Tensor:
        """The same ids in two chunks and one decode step must give the same logits; else the model needs something unknown here."""
        try:
            logits = self._computed(tried, [_TOKENS // 2, _TOKENS - 1, _TOKENS])
        except (UnsupportedAttention, TypeError, AttributeError, IndexError) as error:
            raise BrokenModel(f"{self._name} cannot be served: {error}") from error
        off = (logits - self._expected).abs().max() / self._expected.std().clamp(min=1e-6)
        if not off < self._tolerance:
            message = f"{self._name} cannot be served: its logits come out otherwise than in transformers (off by {off:.2g})"
            raise BrokenModel(message)
        self._check_windows(tried.windows)
        return logits

    def _check_windows(self, windows: dict[int, int | None]) -> None:
        # Too few ids were compared to feel a sliding window, so at least each layer that should have one must have asked for it.
        kinds = getattr(self._config, "layer_types", None)
        if kinds is None:
            everywhere = getattr(self._config, "sliding_window", None)
            kinds = ["sliding_attention" if everywhere else "full_attention"] * len(windows)
        for layer, kind in enumerate(kinds):
            if (kind == "sliding_attention") != (windows.get(layer) is not None):
                raise BrokenModel(f"{self._name} cannot be served: layer {layer} is {kind}, but asks attention for something else")

    def _otherwise(self, tried: Network) -> Iterator[torch.Tensor]:
        """The same logits in other ways."""
        for cuts, company in (([_TOKENS], 0), ([1, 3, _TOKENS], 0), ([3, _TOKENS - 1, _TOKENS], 9), ([_TOKENS], _COMPANY)):
            yield self._computed(tried, cuts, company)

    def _computed(self, tried: Network, cuts: list[int], company: int = 0) -> torch.Tensor:
        """Logits behind the ids, computed in parts that end at `cuts` beside `company` other tokens."""
        own = blocks_for(_TOKENS)
        for start, stop in pairwise((0, *cuts)):
            spans = [Span(list(range(1, 1 + own)), start, 0, stop - start)]
            decodes = 1 if stop - start == 1 else 0
            if company:
                spans.append(Span(list(range(1 + own, 1 + own + blocks_for(company))), 0, stop - start, company))
            ids = [*self._ids[start:stop], *[self._ids[0]] * company]
            logits = tried.forward(spans[:decodes], spans[decodes:], ids, [stop - start - 1])[0]
        return logits
