"""A GGUF file's vocabulary as the JSON that the tokenizers library reads.

Two kinds: `gpt2` (byte-level BPE with explicit merges; `tokenizer.ggml.pre` names how text is cut before merging) and `llama`
(SentencePiece BPE: merges follow from the pieces' scores, unknown characters fall back on byte tokens).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model_profile.errors import BrokenModel

JsonObject = dict[str, Any]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`."""
_ADDED = frozenset({UNKNOWN, CONTROL, USER_DEFINED})
"""Found in text before it is cut and merged."""

_SPACE = "▁"


@dataclass(frozen=True, slots=True)
class _Cut:
    """How text is cut into words before merging. `ignore_merges`: a word that is a token is taken whole. `bos`: by default."""

    steps: tuple[JsonObject, ...]
    normalizer: JsonObject | None = None
    ignore_merges: bool = False
    bos: bool = False


def _split(*patterns: str) -> tuple[JsonObject, ...]:
    isolated: JsonObject = {"behavior": "Isolated", "invert": False}
    steps: list[JsonObject] = [{"type": "Split", "pattern": {"Regex": pattern}, **isolated} for pattern in patterns]
    return (*steps, _byte_level(use_regex=False))


def _byte_level(*, use_regex: bool) -> JsonObject:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{{digits}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CASED_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
_PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    rf"{_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}",
)

_GPT2 = _Cut((_byte_level(use_regex=True),))
_DIGIT_BY_DIGIT = _Cut(({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)))
_LLAMA3 = _Cut(_split(_WORDS.replace("{digits}", r"\p{N}{1,3}")), ignore_merges=True, bos=True)
_QWEN2 = _Cut(_split(_WORDS.replace("{digits}", r"\p{N}")), normalizer={"type": "NFC"})
_CUTS: Mapping[str, _Cut] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _DIGIT_BY_DIGIT,
    "starcoder": _DIGIT_BY_DIGIT,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "deepseek-v3": _Cut(_split(*_DEEPSEEK_V3)),
    "gpt-4o": _Cut(_split(_CASED_WORDS), ignore_merges=True),
}


def tokenizer_json(metadata: Mapping[str, Any]) -> JsonObject:
    """What `tokenizer.json` of the same model holds. Raises `BrokenModel` for a kind of vocabulary that is not known."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise BrokenModel("the GGUF file has no vocabulary (tokenizer.ggml.tokens)")
    types = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise BrokenModel(f"the GGUF file has {len(tokens)} tokens but {len(types)} token types")
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        parts, bos = _byte_level_bpe(metadata, tokens)
    elif kind == "llama":
        parts, bos = _sentencepiece_bpe(metadata, tokens, types)
    else:
        raise BrokenModel(f"the GGUF file's tokenizer is of kind {kind!r}; gpt2 and llama are read. Use the model's tokenizer.json")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(index, tokens[index], kind) for index, kind in enumerate(types) if kind in _ADDED],
        "post_processor": _post_processor(metadata, tokens, bos),
        **parts,
    }


def _added(index: int, token: str, kind: int) -> JsonObject:
    special = kind != USER_DEFINED
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _byte_level_bpe(metadata: Mapping[str, Any], tokens: list[str]) -> tuple[JsonObject, bool]:
    name = metadata.get("tokenizer.ggml.pre", "default")
    cut = _CUTS.get(name)
    if cut is None:
        known = ", ".join(_CUTS)
        raise BrokenModel(
            f"the GGUF file cuts text by the rules {name!r} (tokenizer.ggml.pre), which are not known here (known: {known}). "
            "Use the model's tokenizer.json"
        )
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise BrokenModel("the GGUF file has no merges (tokenizer.ggml.merges)")
    model = _bpe(tokens, merges, ignore_merges=cut.ignore_merges)
    steps = list(cut.steps)
    pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {"normalizer": cut.normalizer, "pre_tokenizer": pre, "decoder": _byte_level(use_regex=True), "model": model}, cut.bos


def _sentencepiece_bpe(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> tuple[JsonObject, bool]:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise BrokenModel("the GGUF file has no score for each token (tokenizer.ggml.scores), which merges follow from")
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", next((i for i, kind in enumerate(types) if kind == UNKNOWN), None))
    spaces: JsonObject = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    decoders: list[JsonObject] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    model = _bpe(tokens, _merges_of_scores(tokens, types, scores), ignore_merges=False)
    model |= {"byte_fallback": BYTE in types, "fuse_unk": True, "unk_token": None if unknown is None else tokens[unknown]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, spaces]} if prefix else spaces,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }, True


def _bpe(tokens: list[str], merges: list[str] | list[list[str]], *, ignore_merges: bool) -> JsonObject:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": merges,
    }


def _merges_of_scores(tokens: list[str], types: list[int], scores: list[float]) -> list[list[str]]:
    """SentencePiece joins whichever neighbours make the piece of the best score: so every way to make a piece, best piece first."""
    ids = {token: index for index, token in enumerate(tokens) if types[index] in (NORMAL, UNUSED)}
    order = sorted(ids.values(), key=lambda index: (-scores[index], index))
    merges: list[list[str]] = []
    for index in order:
        piece = tokens[index]
        ways = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece)) if piece[:cut] in ids and piece[cut:] in ids]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        merges += [list(way) for way in ways]
    return merges


def _post_processor(metadata: Mapping[str, Any], tokens: list[str], bos_by_default: bool) -> JsonObject | None:
    def wanted(name: str, default: bool) -> str | None:
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        add = metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        return tokens[index] if add and isinstance(index, int) and index < len(tokens) else None

    bos, eos = wanted("bos", bos_by_default), wanted("eos", False)
    if bos is None and eos is None:
        return None

    def around(sequence: str, type_id: int) -> list[JsonObject]:
        special = [token and {"SpecialToken": {"id": token, "type_id": type_id}} for token in (bos, eos)]
        return [item for item in (special[0], {"Sequence": {"id": sequence, "type_id": type_id}}, special[1]) if item]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": around("A", 0) + around("B", 1),
        "special_tokens": {token: {"id": token, "ids": [tokens.index(token)], "tokens": [token]} for token in (bos, eos) if token},
    }
