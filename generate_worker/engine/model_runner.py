"""Runs one step of the model: work in, one row of logits for each sequence that is due a token out."""

from dataclasses import dataclass
from typing import Any

import torch

from generate_worker.engine import attention, packed_linear
from generate_worker.engine.attention import PackedStep, Span
from generate_worker.engine.kv_cache import KVCache
from generate_worker.engine.scheduler import Work
from generate_worker.engine.sequence import Sequence
from generate_worker.engine.trial import BLOCKS, Trial


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

    Raises `BrokenModel` for an architecture whose attention cannot be served. `batch_invariant`: whether a sequence's logits were
    the same bits alone, in parts, and in company.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        with torch.inference_mode():
            trial = Trial(self.model)
            self._shapes = trial.shapes
            self.model.set_attn_implementation(attention.NAME)
            if self.device.type == "cpu":
                packed_linear.pack(self.model)
            self.allocate(BLOCKS)
            self.batch_invariant = trial.invariant(self)

    @property
    def bytes_per_token(self) -> int:
        """What a position takes in the cache."""
        return sum(shape.bytes_for(self.dtype) for shape in self._shapes)

    def allocate(self, blocks: int) -> None:
        """Makes the cache, in place of any before. Raises `torch.OutOfMemoryError` or `RuntimeError` where memory is short."""
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
        step = self.packed(spans[: len(decodes)], spans[len(decodes) :])
        return Forward(self.forward(step, spans, ids, kept), due, scored)

    @torch.inference_mode()
    def scrub(self, blocks: list[int]) -> None:
        """Takes what may be no numbers out of the cache."""
        self._cache.scrub(blocks)

    def packed(self, decodes: list[Span], chunks: list[Span]) -> PackedStep:
        """A step over the cache."""
        return PackedStep.of(self._cache, decodes, chunks, self.device)

    def forward(self, step: PackedStep, spans: list[Span], ids: list[int], kept: list[int]) -> torch.Tensor:
        """Float32 [kept, vocab]: the logits at the places `kept` of the packed `ids`, which are those of `spans`."""
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


def _scored(work: Work) -> int:
    """How many of the work's positions, the first ones, have a next token that is of a prompt to be scored."""
    sequence = work.sequence
    if sequence.index or not sequence.job.wants_prompt_scores:
        return 0
    return max(0, min(work.end, len(sequence.request.prompt_ids) - 1) - work.start)
