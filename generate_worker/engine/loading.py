"""Puts the torch engine together: model, runner, scheduler, and the defaults that depend on the device."""

import os
from dataclasses import dataclass

import torch

from generate_worker import pretrained, stop_tokens, weights
from generate_worker.engine.base import Observer
from generate_worker.engine.model_runner import ModelRunner
from generate_worker.engine.scheduler import Scheduler
from generate_worker.engine.torch_engine import TorchEngine
from generate_worker.stop_tokens import StopTokens
from model_profile.errors import ProfileError

# A chunk is what a running stream waits for. Fewer tokens leave the processor less than busy, more make streams stutter.
_CHUNK_TOKENS = {"cpu": 256, "cuda": 512}


@dataclass(frozen=True, slots=True)
class Loaded:
    engine: TorchEngine
    vocab_size: int
    max_model_len: int
    stop_tokens: StopTokens


def load_torch_engine(
    model: str,
    *,
    device: pretrained.Device,
    dtype: pretrained.Dtype,
    slots: int,
    max_queue: int,
    max_model_len: int | None,
    chunk_tokens: int | None,
    threads: int,
    observer: Observer,
) -> Loaded:
    """Raises `ProfileError`s. `max_model_len`, `chunk_tokens` None and `threads` 0 stand for the defaults."""
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
    runner = ModelRunner(network, slots, length)
    scheduler = Scheduler(slots, chunk_tokens or _CHUNK_TOKENS.get(place.type, 512), max_queue)
    engine = TorchEngine(runner, scheduler, length, observer)
    return Loaded(engine, runner.vocab_size, length, stop_tokens.read(weights.text_folder(model, folder)))
