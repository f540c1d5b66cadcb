"""Puts the torch engine together: model, runner, scheduler, and the defaults that depend on the device."""

import logging
import os
from dataclasses import dataclass

import torch

from generate_worker import pretrained, stop_tokens, weights
from generate_worker.engine import kv_budget
from generate_worker.engine.base import Observer
from generate_worker.engine.block_pool import BLOCK, BlockPool
from generate_worker.engine.model_runner import Kernels, ModelRunner
from generate_worker.engine.scheduler import Scheduler
from generate_worker.engine.torch_engine import TorchEngine
from generate_worker.stop_tokens import StopTokens
from model_profile.errors import ProfileError

log = logging.getLogger("tandem.engine")

# A chunk is what running streams wait for: fewer tokens leave the processor less than busy, more make the streams stutter.
_CHUNK_TOKENS = {"cpu": 64, "cuda": 512}
_ALONE_TOKENS = {"cpu": 256, "cuda": 2048}
"""Where no stream waits. More would only make new ones wait."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """`max_model_len`: tokens of prompt and output that a request may come to."""

    engine: TorchEngine
    vocab_size: int
    max_model_len: int
    stop_tokens: StopTokens


def load_torch_engine(
    model: str,
    *,
    device: pretrained.Device,
    dtype: pretrained.Dtype,
    max_seqs: int,
    max_queue: int,
    max_model_len: int | None,
    chunk_tokens: int | None,
    kv_memory: int | None,
    shares_prefixes: bool,
    threads: int,
    kernels: Kernels,
    observer: Observer,
) -> Loaded:
    """Raises `ProfileError`s. None and `threads` 0 stand for the defaults; `kv_memory` is in bytes."""
    place = pretrained.choose_device(device)
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    folder = weights.weights_folder(model)
    network = pretrained.load(folder, place, pretrained.choose_dtype(dtype, place))
    config = network.config.get_text_config()
    longest: int | None = getattr(config, "max_position_embeddings", None)
    length = max_model_len or longest
    if length is None:
        raise ProfileError(f"{folder} does not tell the model's context length; give --max-model-len")
    if longest is not None and length > longest:
        raise ProfileError(f"--max-model-len {length} is more than the model's own {longest}")
    runner = ModelRunner(network, kernels)
    pool = _kv_cache(runner, kv_memory, length, max_seqs)
    alone = chunk_tokens or _ALONE_TOKENS.get(place.type, 2048)
    chunk = chunk_tokens or _CHUNK_TOKENS.get(place.type, 512)
    scheduler = Scheduler(pool, max_seqs, chunk, max_queue, shares_prefixes, alone)
    # A sequence must fit the cache when it is alone there.
    holds = min(length, pool.size * BLOCK)
    if not runner.batch_invariant:
        log.warning("this model's logits depend, in their last bits, on who shares a step: a seed may not reproduce every token")
    if holds < length:
        log.warning("the KV cache holds %d tokens, so that is the longest context, not the model's %d", holds, length)
    return Loaded(
        TorchEngine(runner, scheduler, observer), runner.vocab_size, holds, stop_tokens.read(weights.text_folder(model, folder))
    )


def _kv_cache(runner: ModelRunner, memory: int | None, longest: int, seqs: int) -> BlockPool:
    """Gives the model its cache."""
    given = kv_budget.budget(runner.device) if memory is None else memory
    count = kv_budget.blocks(given, runner.bytes_per_token, longest=longest, seqs=seqs)
    if count < 1:
        need = runner.bytes_per_token * BLOCK
        raise ProfileError(f"--kv-cache-memory: {given} bytes hold no block of the KV cache, which takes {need}")
    try:
        runner.allocate(count)
    except (RuntimeError, OSError) as error:  # torch.OutOfMemoryError is one of the first
        message = f"--kv-cache-memory: {given} bytes could not be had on {runner.device}: {weights.first_line(error)}"
        raise ProfileError(message) from error
    return BlockPool(count)
