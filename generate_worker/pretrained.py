"""A model folder's weights in memory, on the device that runs them. Safetensors only; pickles are never opened."""

import sys
from pathlib import Path
from typing import Any, Literal

import torch

from generate_worker.weights import LOAD_ERRORS, first_line
from model_profile.errors import BrokenModel

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


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

    # For people. In a log it would be a line a second.
    (logging.enable_progress_bar if sys.stderr.isatty() else logging.disable_progress_bar)()
    try:
        loaded, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
        missing = sorted(info["missing_keys"])
        if missing:
            raise BrokenModel(f"the weights in {folder} lack {len(missing)} tensors of the model, {missing[0]} among them")
        return loaded.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise BrokenModel(f"the model in {folder} does not fit the memory of {device}: {first_line(error)}") from error
    except LOAD_ERRORS as error:
        raise BrokenModel(f"the model in {folder} cannot be loaded: {first_line(error)}") from error
