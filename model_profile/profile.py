"""Loads a model's text side from the files of its folder."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from tokenizers import Tokenizer, decoders

from model_profile import sources
from model_profile.chat_template import ChatTemplate
from model_profile.errors import BrokenModel
from model_profile.template import TemplateExceeded
from model_profile.template_budget import STANDARD, TemplateLimits
from protocol.errors import invalid
from protocol.sampling import SamplingParams

JsonObject = dict[str, Any]

MAX_CONTEXT = 2**22
"""Of a longer context no more is used: a body with so many ids takes half a second to read."""
_UNBOUNDED = 10**9
"""tokenizer_config.json writes some 10**30 where nobody set a length."""

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


# Compared by identity: a tokenizer has no equality, and one process holds one profile.
@dataclass(frozen=True, eq=False)
class ModelProfile:
    """One model's text side.

    `eos_token_ids`: the primary one first. `special_tokens`: what templates read (`bos_token`, `eos_token`, …), as text.
    `vocab_size`: ids the model may emit are below it. `generation_defaults`: sampling values of generation_config.json, by
    their names in `SamplingParams`; `max_tokens` where it bounds the output.
    `longest_token`: bytes of text that one token can stand for at most. `fingerprint`: changes with the tokenizer, the template and
    the eos ids, and is the same on every replica.
    """

    name: str
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    eos_token_ids: tuple[int, ...]
    special_tokens: Mapping[str, str]
    max_model_len: int
    vocab_size: int
    longest_token: int
    generation_defaults: Mapping[str, Any]
    fingerprint: str

    @property
    def byte_level(self) -> bool:
        """Whether a token stands for the same bytes wherever it is."""
        return isinstance(self.tokenizer.decoder, decoders.ByteLevel)

    @property
    def bos_token_id(self) -> int | None:
        token = self.special_tokens.get("bos_token")
        return None if token is None else self.tokenizer.token_to_id(token)


def load(
    model: str,
    *,
    chat_template: str | None = None,
    max_model_len: int | None = None,
    template_limits: TemplateLimits = STANDARD,
) -> ModelProfile:
    """The profile of what `--model` names. `chat_template` is a Jinja file that replaces the model's own.

    Raises `ProfileError`: `ModelNotFound`, or `BrokenModel` that says which file is wrong and how.
    """
    folder = sources.resolve(model)
    tokenizer, tokenizer_bytes = _tokenizer(folder)
    tokenizer_config = _json(folder / "tokenizer_config.json") or {}
    config = _text_config(_json(folder / "config.json") or {})
    generation = _json(folder / "generation_config.json") or {}
    if chat_template:
        template: ChatTemplate | None = _template(_text(Path(chat_template).expanduser()), chat_template, template_limits)
    else:
        template = _own_template(folder, tokenizer_config, template_limits)
    special = _special_tokens(_json(folder / "special_tokens_map.json") or {}, tokenizer_config)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise BrokenModel(f"{folder / 'tokenizer.json'} has an empty vocabulary")
    eos = _eos_ids(tokenizer, special, config, generation)
    return ModelProfile(
        name=model,
        tokenizer=tokenizer,
        chat_template=template,
        eos_token_ids=eos,
        special_tokens=special,
        max_model_len=min(MAX_CONTEXT, max_model_len or _context_length(folder, config, tokenizer_config)),
        vocab_size=max([max(vocabulary.values()) + 1, *_ints(config.get("vocab_size"))]),
        longest_token=max(len(token.encode()) for token in vocabulary),
        generation_defaults=_generation_defaults(folder, generation),
        fingerprint=_fingerprint(tokenizer_bytes, template, special, eos),
    )


def _tokenizer(folder: Path) -> tuple[Tokenizer, bytes]:
    path = folder / "tokenizer.json"
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        if (folder / "tokenizer.model").exists():
            raise BrokenModel(
                f"{folder} has a tokenizer.model but no tokenizer.json, which is what is read here; "
                "load the model once with transformers and save its fast tokenizer there"
            ) from error
        raise BrokenModel(f"{folder} has no tokenizer.json: is it the folder of a model?") from error
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read: {error.strerror}") from error
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except ValueError as error:
        raise BrokenModel(f"{path} is no valid tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, content


def _json(path: Path) -> JsonObject | None:
    """The object in the file, or None where there is no file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BrokenModel(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BrokenModel(f"{path} must hold a JSON object")
    return value


def _text_config(config: JsonObject) -> JsonObject:
    """Multimodal models keep the text model's values one level down."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def _own_template(folder: Path, tokenizer_config: JsonObject, limits: TemplateLimits) -> ChatTemplate | None:
    """A file beside the tokenizer beats the entry in tokenizer_config.json, as in transformers."""
    beside, tool = folder / "chat_template.jinja", folder / "additional_chat_templates" / "tool_use.jinja"
    if beside.exists():
        named = [{"name": "default", "template": _text(beside)}]
        if tool.exists():
            named.append({"name": "tool_use", "template": _text(tool)})
        return _template(named, str(beside), limits)
    legacy = folder / "chat_template.json"
    for path, content in ((folder / "tokenizer_config.json", tokenizer_config), (legacy, _json(legacy) or {})):
        if content.get("chat_template"):
            return _template(content["chat_template"], str(path), limits)
    return None


def _template(value: Any, where: str, limits: TemplateLimits) -> ChatTemplate:
    template = ChatTemplate.of(value, where, limits)
    try:
        # Learned now, so that no request pays for it.
        for with_tools in (False, True):
            template.habits(with_tools=with_tools)
    except TemplateExceeded as error:
        raise BrokenModel(f"{where}: tried on a chat of a few words, {error}") from error
    return template


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BrokenModel(f"the chat template {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BrokenModel(f"the chat template {path} is not UTF-8 text") from error


def _special_tokens(older: JsonObject, tokenizer_config: JsonObject) -> dict[str, str]:
    """`special_tokens_map.json` is the older place; tokenizer_config.json's own entries win, also where they say null."""
    entries = {**older, **tokenizer_config}
    extra = entries.get("extra_special_tokens")
    if isinstance(extra, dict):
        entries = {**extra, **entries}
    found = {key: _token_text(value) for key, value in entries.items() if key.endswith("_token")}
    return {key: text for key, text in found.items() if text is not None}


def _token_text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _eos_ids(tokenizer: Tokenizer, special: Mapping[str, str], config: JsonObject, generation: JsonObject) -> tuple[int, ...]:
    def found() -> Iterator[int]:
        token = special.get("eos_token")
        index = None if token is None else tokenizer.token_to_id(token)
        if index is not None:
            yield index
        for value in (config.get("eos_token_id"), generation.get("eos_token_id")):
            yield from _ints(value)

    return tuple(dict.fromkeys(found()))


def _generation_defaults(folder: Path, generation: JsonObject) -> JsonObject:
    # Checked now: a value that no request could be sampled with must not look like the client's mistake later.
    values = {key: generation[key] for key in _DEFAULTS if generation.get(key) is not None}
    if generation.get("max_new_tokens") is not None:
        values["max_tokens"] = generation["max_new_tokens"]
    try:
        SamplingParams.model_validate(values)
    except ValidationError as error:
        raise BrokenModel(f"{folder / 'generation_config.json'}: {invalid(error).message}") from error
    return values


def _ints(value: Any) -> list[int]:
    """An int or a list of them, as configurations write ids; nothing for anything else."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool) and item >= 0]


def _context_length(folder: Path, config: JsonObject, tokenizer_config: JsonObject) -> int:
    lengths = [*(config.get(key) for key in _CONTEXT_KEYS), tokenizer_config.get("model_max_length")]
    for length in lengths:
        if isinstance(length, int) and 0 < length < _UNBOUNDED:
            return length
    raise BrokenModel(
        f"{folder} does not say how long a context the model takes (config.json: max_position_embeddings, or "
        "tokenizer_config.json: model_max_length); give --max-model-len"
    )


def _fingerprint(tokenizer: bytes, template: ChatTemplate | None, special: Mapping[str, str], eos: tuple[int, ...]) -> str:
    rest = [template and template.source, template and template.tool_source, dict(special), eos]
    digest = hashlib.sha256(tokenizer)
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()[:32]
