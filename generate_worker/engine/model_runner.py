"""Runs one step of the model: work in, one row of logits for each sequence that is due a token out."""

import logging
from dataclasses import dataclass
from typing import Any, Literal

import torch

from generate_worker.engine.kv_cache import LayerShape
from generate_worker.engine.native import compiler
from generate_worker.engine.native.network import NativeNetwork, serves
from generate_worker.engine.network import Network, Span
from generate_worker.engine.scheduler import Work
from generate_worker.engine.sequence import Sequence
from generate_worker.engine.transformers_network import TransformersNetwork
from generate_worker.engine.trial import BLOCKS, Trial
from model_profile.errors import BrokenModel

log = logging.getLogger("tandem.engine")

Kernels = Literal["auto", "native", "torch"]


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

    Raises `BrokenModel` for an architecture that cannot be served, and where native kernels are asked for that cannot be had.
    `batch_invariant`: whether a sequence's logits were the same bits alone, in parts, and in company.
    """

    def __init__(self, model: Any, kernels: Kernels = "auto") -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        with torch.inference_mode():
            trial = Trial(self.model)
            self.network = _network(self.model, trial.shapes, kernels)
            self.allocate(BLOCKS)
            self.batch_invariant = trial.invariant(self.network)

    @property
    def native(self) -> bool:
        """Whether the kernels of `native` compute it."""
        return isinstance(self.network, NativeNetwork)

    @property
    def bytes_per_token(self) -> int:
        """What a position takes in the cache."""
        return self.network.bytes_per_token

    def allocate(self, blocks: int) -> None:
        """Makes the cache, in place of any before. Raises `RuntimeError` or `OSError` where memory is short."""
        self.network.allocate(blocks)

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
        logits = self.network.forward(spans[: len(decodes)], spans[len(decodes) :], ids, kept)
        return Forward(logits, due, scored)

    @torch.inference_mode()
    def scrub(self, blocks: list[int]) -> None:
        """Takes what may be no numbers out of the cache."""
        self.network.scrub(blocks)


def _network(model: Any, shapes: list[LayerShape], kernels: Kernels) -> Network:
    if kernels != "torch" and serves(model):
        try:
            return NativeNetwork(model, torch.get_num_threads())
        except compiler.NoKernels as error:
            if kernels == "native":
                raise BrokenModel(f"--cpu-kernels native: they cannot be had: {error}") from error
            log.warning("the CPU kernels cannot be had (%s); torch's serve, several times slower", error)
    elif kernels == "native":
        what = f"{type(model).__name__} in {model.dtype} on {model.device}"
        raise BrokenModel(f"--cpu-kernels native: {what} is not what they compute")
    return TransformersNetwork(model, shapes)


def _scored(work: Work) -> int:
    """How many of the work's positions, the first ones, have a next token that is of a prompt to be scored."""
    sequence = work.sequence
    if sequence.index or not sequence.job.wants_prompt_scores:
        return 0
    return max(0, min(work.end, len(sequence.request.prompt_ids) - 1) - work.start)
