"""The tokens between which a model reasons: what a structure of the output has to wait for."""

from dataclasses import dataclass

from tokenizers import Tokenizer

_THINK = ("<think>", "</think>")
_OTHERS = {
    "mistral": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "gemma4": ("<|channel>", "<channel|>"),
}
"""By the name of the parser; all others have `_THINK`."""


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """Token ids. `start` is None where the model has no such token. `others` are all other added tokens: one begins a turn."""

    start: int | None
    end: int
    others: frozenset[int]


def marks(reasoning_parser: str | None, tokenizer: Tokenizer) -> ReasoningMarks | None:
    """None where the model does not reason, or ends its reasoning in ordinary text."""
    if reasoning_parser is None:
        return None
    added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    start, end = (added.get(text) for text in _OTHERS.get(reasoning_parser, _THINK))
    if end is None:
        return None
    return ReasoningMarks(start, end, frozenset(added.values()) - {start, end})
