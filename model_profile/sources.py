"""From what `--model` says to files on this machine."""

import re
from pathlib import Path

from model_profile import gguf_files, packaged
from model_profile.errors import BrokenModel, ModelNotFound

TEXT_FILES = (
    "tokenizer*.json",
    "special_tokens_map.json",
    "config.json",
    "generation_config.json",
    "chat_template.json",
    "*.jinja",
)
"""What is fetched of a hub repository: never weights."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_KINDS = f"--model takes {packaged.NAME} (packaged), a local Hugging Face folder, a .gguf file, or a hub id such as owner/name"


def resolve(model: str) -> Path:
    """The local folder with the model's text files, fetched or converted first where needed.

    Raises `ModelNotFound`, `BrokenModel`, and `ProfileError` when the cache cannot be written.
    """
    gguf = gguf_file(model)
    if gguf is not None:
        return gguf_files.text_folder(gguf)
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise BrokenModel(f"{path} is a file, but no .gguf file; {_KINDS}")
    if not _HUB_ID.fullmatch(model):
        raise ModelNotFound(f"no such folder or file: {model}; {_KINDS}")
    return _from_hub(model)


def gguf_file(model: str) -> Path | None:
    """The .gguf file behind `--model` (the packaged model's is fetched first), or None where the model is a folder or a hub id.

    Raises `ModelNotFound`.
    """
    if model == packaged.NAME:
        return packaged.gguf_path()
    path = Path(model).expanduser()
    if path.suffix != ".gguf":
        return None
    if not path.is_file():
        raise ModelNotFound(f"no such file: {path}; {_KINDS}")
    return path


def _from_hub(model: str) -> Path:
    # Imported here: it costs a good part of a second, and most starts need no hub.
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(model, allow_patterns=list(TEXT_FILES)))
    except GatedRepoError as error:
        raise ModelNotFound(f"the hub gives {model} only to those it has admitted; log in with `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"{model} is neither a local path nor a repository on the hub; {_KINDS}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelNotFound(f"{model} is no local path, and could not be fetched from the hub: {reason}; {_KINDS}") from error
