"""Which ids end a choice, read from the files of a model folder. No tokenizer is needed to look up one id."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profile.errors import BrokenModel


@dataclass(frozen=True, slots=True)
class StopTokens:
    """`primary` is the tokenizer's eos token (its `stop_reason` is null), `all` every id that a config names as eos."""

    primary: int | None
    all: frozenset[int]


def read(folder: Path) -> StopTokens:
    """From config.json, generation_config.json and tokenizer_config.json together. Raises `BrokenModel` for broken JSON."""
    config = _json(folder / "config.json")
    ids = [
        *_ids(config.get("eos_token_id")),
        *_ids(_object(config.get("text_config")).get("eos_token_id")),
        *_ids(_json(folder / "generation_config.json").get("eos_token_id")),
    ]
    named = _tokenizer_eos(folder)
    primary = named if named is not None else next(iter(ids), None)
    return StopTokens(primary, frozenset(ids if primary is None else [primary, *ids]))


def _tokenizer_eos(folder: Path) -> int | None:
    config = _json(folder / "tokenizer_config.json")
    token = config.get("eos_token")
    text = token if isinstance(token, str) else _object(token).get("content")
    if not isinstance(text, str):
        return None
    for index, added in _object(config.get("added_tokens_decoder")).items():
        if _object(added).get("content") == text and index.isdigit():
            return int(index)
    tokenizer = _json(folder / "tokenizer.json")
    for added in tokenizer.get("added_tokens") or []:
        if _object(added).get("content") == text:
            return _first(added.get("id"))
    vocabulary = _object(tokenizer.get("model")).get("vocab")
    return _first(vocabulary.get(text)) if isinstance(vocabulary, dict) else None


def _first(value: Any) -> int | None:
    return next(iter(_ids(value)), None)


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool) and one >= 0]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        return _object(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{path} cannot be read: {error}") from error
