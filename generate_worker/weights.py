"""From what `--model` says to a loaded transformers model. Weights are safetensors; pickles are never opened.

A GGUF file is converted once to a folder in the cache (de-quantised, which takes a while); later starts load that in seconds.
"""

import hashlib
import struct
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from safetensors import SafetensorError

from model_profile import sources
from model_profile.cache import prepared
from model_profile.errors import BrokenModel, ModelNotFound

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

_CONVERTED_BY = 1
"""Part of the cache key: raise it whenever the conversion comes out otherwise."""

_LOAD_ERRORS = (
    SafetensorError,
    struct.error,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
)
"""What transformers, safetensors and torch raise for files that are missing, cut off, or of another shape than the config says."""


def choose_device(device: Device) -> torch.device:
    """Raises `BrokenModel` where CUDA is asked for and not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BrokenModel("--device cuda: this machine has no CUDA device that torch can use; use --device cpu")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return names.get(dtype, torch.bfloat16 if device.type == "cuda" else torch.float32)


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """The model of a folder on its device, ready for inference. Raises `ProfileError`s, each a line that says what is wrong."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        loaded, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
        missing = sorted(info["missing_keys"])
        if missing:
            raise BrokenModel(f"the weights in {folder} lack {len(missing)} tensors of the model, {missing[0]} among them")
        return loaded.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise BrokenModel(f"the model in {folder} does not fit the memory of {device}: {_line(error)}") from error
    except _LOAD_ERRORS as error:
        raise BrokenModel(f"the model in {folder} cannot be loaded: {_line(error)}") from error


def weights_folder(model: str) -> Path:
    """A local folder with config.json and safetensors, fetched or converted first where needed. Raises `ProfileError`s."""
    gguf = sources.gguf_file(model)
    if gguf is not None:
        stat = gguf.stat()
        key = f"{gguf.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{_CONVERTED_BY}"
        name = f"weights/{gguf.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        return prepared(name, lambda folder: _convert(gguf, folder))
    folder = sources.resolve(model)
    if not Path(model).expanduser().is_dir():
        folder = _from_hub(model)
    if not (folder / "config.json").is_file():
        raise BrokenModel(f"{folder} has no config.json; a worker needs a whole model folder")
    if not any(folder.glob("*.safetensors")):
        raise BrokenModel(f"{folder} has no *.safetensors; a worker loads safetensors only (or a .gguf file)")
    return folder


def text_folder(model: str, folder: Path) -> Path:
    """Where the model's tokenizer files are: beside the weights, but for a GGUF file, whose conversion writes none."""
    return sources.resolve(model) if sources.gguf_file(model) is not None else folder


def _from_hub(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=[*sources.TEXT_FILES, "*.safetensors", "*.safetensors.index.json"]))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelNotFound(f"the weights of {model} could not be fetched from the hub: {_line(error)}") from error


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    Console(stderr=True).print(f"converting {gguf.name} to safetensors (once, some 20 seconds for a small model)")
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # transformers takes the model for quantised still, and would not save it.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
    except _LOAD_ERRORS as error:
        raise BrokenModel(f"{gguf} cannot be converted: {_line(error)}") from error


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
