"""The text side of a GGUF file, written once as the files of a Hugging Face folder."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_profile import gguf_metadata
from model_profile.cache import prepared
from model_profile.errors import BrokenModel
from model_profile.gguf_tokenizer import tokenizer_json

_WRITTEN_BY = 1
"""Part of the cache key: raise it whenever the files come out otherwise."""

_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token", "seperator": "sep_token"}
"""GGUF's names, one of them misspelt there."""


def text_folder(gguf: Path) -> Path:
    """A folder with tokenizer.json, tokenizer_config.json, config.json and generation_config.json. Raises `BrokenModel`."""
    stat = gguf.stat()
    key = f"{gguf.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{_WRITTEN_BY}"
    return prepared(f"text/{gguf.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}", lambda folder: _write(gguf, folder))


def _write(gguf: Path, folder: Path) -> None:
    metadata = gguf_metadata.read(gguf)
    try:
        files = {
            "tokenizer.json": tokenizer_json(metadata),
            "tokenizer_config.json": _tokenizer_config(metadata),
            "config.json": _config(metadata),
            "generation_config.json": _present({"eos_token_id": _eos_ids(metadata)}),
        }
    except BrokenModel as error:
        raise BrokenModel(f"{gguf}: {error}") from error
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {}
    for name, key in _SPECIAL.items():
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(index, int) and index < len(tokens):
            config[key] = tokens[index]
    return _present(config | {"chat_template": _templates(metadata)})


def _templates(metadata: Mapping[str, Any]) -> str | list[dict[str, str]] | None:
    default = metadata.get("tokenizer.chat_template")
    named = {name: metadata.get(f"tokenizer.chat_template.{name}") for name in metadata.get("tokenizer.chat_templates", [])}
    if not any(named.values()):
        return default
    return [{"name": name, "template": text} for name, text in {"default": default, **named}.items() if text]


def _config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    architecture = metadata.get("general.architecture", "")
    return _present(
        {
            "model_type": architecture,
            "max_position_embeddings": metadata.get(f"{architecture}.context_length"),
            "vocab_size": metadata.get(f"{architecture}.vocab_size", len(metadata["tokenizer.ggml.tokens"])),
            "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        }
    )


def _eos_ids(metadata: Mapping[str, Any]) -> list[int] | None:
    """Chat models may end a turn with another token than a text; GGUF keeps them apart."""
    ids = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(index for index in ids if isinstance(index, int))) or None


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
