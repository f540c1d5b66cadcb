"""Runs one step of the model: work in, one row of logits for each sequence that is due a token out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from generate_worker.engine import attention, packed_linear
from generate_worker.engine.attention import PackedStep, Span
from generate_worker.engine.block_pool import blocks_for
from generate_worker.engine.kv_cache import KVCache, LayerShape
from generate_worker.engine.scheduler import Work
from generate_worker.engine.sequence import Sequence
from model_profile.errors import BrokenModel

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_PROBE_TOKENS = 12
_COMPANY = 50
"""Tokens that are computed beside them. More would make the start of a large model long."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Positions of a prompt from `start` on, whose logits say how likely the prompt's next tokens were."""

    sequence: Sequence
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Forward:
    """What a step's model came to: float32 [rows, vocab]. First come the rows of `due`, then those of each of `scored`."""

    logits: torch.Tensor
    due: list[Sequence]
    scored: list[Scored]


class ModelRunner:
    """Owns the model and its KV cache.

    Raises `BrokenModel` for an architecture whose attention cannot be served; what it computes is compared with what transformers
    itself computes before the first request.

    `batch_invariant`: whether a sequence's logits were the same bits alone, in parts, and in company.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self._refuse_unknown(model)
        with torch.inference_mode():
            self._shapes = self._observe()
            self.model.set_attn_implementation(attention.NAME)
            if self.device.type == "cpu":
                packed_linear.pack(self.model)
            self._cache = KVCache(self._shapes, blocks_for(_PROBE_TOKENS) + blocks_for(_COMPANY), self.dtype, self.device)
            alone = self._verify()
            self.batch_invariant = all(torch.equal(alone, other) for other in self._otherwise())

    @property
    def bytes_per_token(self) -> int:
        """What a position takes in the cache."""
        return sum(shape.bytes_for(self.dtype) for shape in self._shapes)

    def allocate(self, blocks: int) -> None:
        """Makes the cache, which may be done once more. Raises `torch.OutOfMemoryError` or `RuntimeError` where memory is short."""
        self._cache = KVCache(self._shapes, blocks, self.dtype, self.device)

    @torch.inference_mode()
    def run(self, works: list[Work]) -> Forward:
        """Computes the works' positions, whose blocks the scheduler has given out."""
        decodes = sorted((work for work in works if work.decodes), key=lambda work: work.start)
        chunks = [work for work in works if not work.decodes]
        spans: list[Span] = []
        ids: list[int] = []
        kept: list[int] = []
        due: list[Sequence] = []
        scored: list[Scored] = []
        for work in (*decodes, *chunks):
            spans.append(Span(work.sequence.blocks, work.start, len(ids), work.count))
            ids += work.token_ids
            if work.due:
                kept.append(len(ids) - 1)
                due.append(work.sequence)
        for span, work in zip(spans, (*decodes, *chunks), strict=True):
            count = _scored(work)
            if count:
                kept += range(span.offset, span.offset + count)
                scored.append(Scored(work.sequence, work.start, count))
        step = PackedStep.of(self._cache, spans[: len(decodes)], spans[len(decodes) :], self.device)
        return Forward(self._forward(step, spans, ids, kept), due, scored)

    @torch.inference_mode()
    def scrub(self, blocks: list[int]) -> None:
        """Takes what may be no numbers out of the cache."""
        self._cache.scrub(blocks)

    def _forward(self, step: PackedStep, spans: list[Span], ids: list[int], kept: list[int]) -> torch.Tensor:
        """Float32 [kept, vocab] of the packed `ids`."""
        # Never a single row, neither in the layers nor in the last one: see `packed_linear`.
        spare = [0] * max(0, packed_linear.MIN_ROWS - len(ids))
        wanted = kept + [0] * max(0, packed_linear.MIN_ROWS - len(kept))
        places = [place for span in spans for place in range(span.start, span.end)]
        output = self.model(
            input_ids=torch.tensor([ids + spare], device=self.device),
            position_ids=torch.tensor([places + spare], device=self.device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.int64, device=self.device),
            tandem_step=step,
        )
        logits: torch.Tensor = output.logits[0, : len(kept)]
        return logits.float()

    def _refuse_unknown(self, model: Any) -> None:
        config = model.config.get_text_config()
        strange = sorted(set(getattr(config, "layer_types", None) or ()) - _KNOWN_LAYERS)
        name = type(model).__name__
        if strange:
            raise BrokenModel(f"{name} has layers of a kind that is not served: {', '.join(strange)}")
        if not type(model)._supports_attention_backend or getattr(config, "is_causal", True) is False:
            raise BrokenModel(f"{name} does not let its attention be replaced, so it cannot be served")

    def _probe_ids(self) -> torch.Tensor:
        return torch.arange(1, 1 + _PROBE_TOKENS, device=self.device)[None] * 7 % self.vocab_size

    def _observe(self) -> list[LayerShape]:
        """What each layer's attention stores, seen in one plain forward; its logits are kept for `_verify`."""
        output = self.model(input_ids=self._probe_ids(), use_cache=True)
        self._expected: torch.Tensor = output.logits[0, -1].float()
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        return [LayerShape(one.keys.shape[1], one.keys.shape[3], one.values.shape[3]) for one in cache.layers]

    def _probe(self, cuts: list[int], company: int = 0) -> tuple[torch.Tensor, PackedStep]:
        """Logits behind the probe's ids, computed in parts that end at `cuts` beside `company` other tokens, and the last step."""
        ids = self._probe_ids()[0].tolist()
        own = blocks_for(len(ids))
        for start, stop in pairwise((0, *cuts)):
            spans = [Span(list(range(1, 1 + own)), start, 0, stop - start)]
            decodes = 1 if stop - start == 1 else 0
            if company:
                spans.append(Span(list(range(1 + own, 1 + own + blocks_for(company))), 0, stop - start, company))
            step = PackedStep.of(self._cache, spans[:decodes], spans[decodes:], self.device)
            logits = self._forward(step, spans, [*ids[start:stop], *[ids[0]] * company], [stop - start - 1])[0]
        return logits, step

    def _otherwise(self) -> Iterator[torch.Tensor]:
        """The probe's logits again, otherwise computed."""
        end = _PROBE_TOKENS
        for cuts, company in (([end], 0), ([1, 3, end], 0), ([3, end - 1, end], 9), ([end], _COMPANY)):
            yield self._probe(cuts, company)[0]

    def _verify(self) -> torch.Tensor:
        """The same ids in two chunks and one decode step must give the same logits; else the model needs something unknown here."""
        name = type(self.model).__name__
        try:
            logits, step = self._probe([_PROBE_TOKENS // 2, _PROBE_TOKENS - 1, _PROBE_TOKENS])
        except (attention.UnsupportedAttention, TypeError, AttributeError, IndexError) as error:
            raise BrokenModel(f"{name} cannot be served: {error}") from error
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.4
        off = (logits - self._expected).abs().max() / self._expected.std().clamp(min=1e-6)
        if not off < tolerance:
            raise BrokenModel(f"{name} cannot be served: its logits come out otherwise than in transformers (off by {off:.2g})")
        self._check_windows(name, step.windows)
        return logits

    def _check_windows(self, name: str, windows: dict[int, int | None]) -> None:
        # Too few ids were compared to feel a sliding window, so at least each layer that should have one must have asked for it.
        config = self.model.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        if kinds is None:
            kinds = ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"] * len(windows)
        for layer, kind in enumerate(kinds):
            if (kind == "sliding_attention") != (windows.get(layer) is not None):
                raise BrokenModel(f"{name} cannot be served: layer {layer} is {kind}, but asks attention for something else")


def _scored(work: Work) -> int:
    """How many of the work's positions, the first ones, have a next token that is of a prompt to be scored."""
    sequence = work.sequence
    if sequence.index or not sequence.job.wants_prompt_scores:
        return 0
    return max(0, min(work.end, len(sequence.request.prompt_ids) - 1) - work.start)
