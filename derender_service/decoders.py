"""From token strings to text, a piece at a time: what `Tokenizer.decode` gives for the whole, cut anywhere.

A decoder is a pure function of a window and new tokens. The window is all that is carried: `context` are tokens whose text was
sent (they tell whether this is the start of the text, and how the next token joins on), `pending` are tokens whose text waits
because the bytes of a character, or of a run of byte tokens, are not complete.

Which decoder a model needs is read from its `tokenizer.json` (`decoder_for`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tokenizers import Tokenizer

from derender_service.byte_fallback import ByteFallbackDecoder
from derender_service.byte_level import ByteLevelDecoder
from derender_service.window import Window
from derender_service.windowed import WindowedDecoder


class Decoder(Protocol):
    """How one kind of tokenizer turns tokens into text."""

    context_tokens: int
    """How many tokens of context the window needs, at most."""

    def seed(self, tail: Sequence[str]) -> Window:
        """The window after a prompt that ends in `tail` (not empty). The prompt's text counts as shown."""

    def push(self, window: Window, tokens: Sequence[str], *, join_added: bool = False) -> tuple[str, Window]:
        """The text that `tokens` make complete, and the window to go on with. Any split of the same tokens gives the same text.

        `join_added` leaves out the space that some tokenizers write between two neighbouring added tokens.
        """

    def finish(self, window: Window) -> str:
        """The text still due when nothing more will come. A character that is not complete is dropped."""

    def piece(self, token: str) -> bytes:
        """The bytes that a token stands for inside a text (its leading space included), be they part of a character only."""


@dataclass(frozen=True)
class _Step:
    """One stage of a `tokenizer.json` decoder."""

    kind: str
    config: dict[str, Any]


def decoder_for(tokenizer: Tokenizer, added_tokens: frozenset[str]) -> Decoder:
    """The decoder that equals `tokenizer.decode`: by table where the stages are known, else by the library over a window."""
    config = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else None
    steps = _flatten(config)
    kinds = [step.kind for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteLevelDecoder()
    replaced = 0
    while replaced < len(steps) and _is_plain_replace(steps[replaced]):
        replaced += 1
    rest = kinds[replaced:]
    if rest[:2] == ["ByteFallback", "Fuse"] and (rest[2:] == [] or (rest[2:] == ["Strip"] and _strips_one(steps[-1]))):
        replacements = tuple((s.config["pattern"]["String"], s.config["content"]) for s in steps[:replaced])
        strip = steps[-1].config["content"] if rest[2:] else None
        return ByteFallbackDecoder(replacements, strip)
    return WindowedDecoder(tokenizer.decoder, kinds, added_tokens)


def _flatten(config: dict[str, Any] | None) -> list[_Step]:
    if config is None:
        return []
    if config["type"] == "Sequence":
        return [step for part in config["decoders"] for step in _flatten(part)]
    return [_Step(config["type"], config)]


def _is_plain_replace(step: _Step) -> bool:
    return step.kind == "Replace" and "String" in step.config["pattern"]


def _strips_one(step: _Step) -> bool:
    return bool(step.config["start"] == 1 and step.config["stop"] == 0)
