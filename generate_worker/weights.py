"""From what `--model` says to a local folder of safetensors.

A GGUF file is converted once to a folder in the cache (de-quantised, which takes a while); later starts load that in seconds. Only
the conversion imports torch, so that asking for what is there already costs nothing.
"""

import hashlib
import struct
from pathlib import Path

from rich.console import Console
from safetensors import SafetensorError

from model_profile import sources
from model_profile.cache import prepared
from model_profile.errors import BrokenModel, ModelNotFound

_CONVERTED_BY = 1
"""Part of the cache key: raise it whenever the conversion comes out otherwise."""

LOAD_ERRORS = (
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
        raise ModelNotFound(f"the weights of {model} could not be fetched from the hub: {first_line(error)}") from error


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    Console(stderr=True).print(f"converting {gguf.name} to safetensors (once, some 20 seconds for a small model)")
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # transformers takes the model for quantised still, and would not save it.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
    except LOAD_ERRORS as error:
        raise BrokenModel(f"{gguf} cannot be converted: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """What an error says, for a message of one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
