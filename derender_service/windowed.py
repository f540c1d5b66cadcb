"""Every other tokenizer (WordPiece, Metaspace ...): the tokenizers library decodes a short window, and the difference is new."""

import re
from collections.abc import Sequence

from tokenizers.decoders import Decoder as LibraryDecoder

from derender_service.byte_fallback import MAX_RUN
from derender_service.utf8 import REPLACEMENT, incomplete_tail
from derender_service.window import Window

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LONGEST_CHARACTER = 4


class WindowedDecoder:
    """What a token adds is `decode(context + token)` without `decode(context)`: neighbours decide about spaces, no others do.

    Where bytes may be split between tokens, tokens wait: byte tokens until their run ends (see `byte_fallback`), tokens of a
    byte-level stage while the text ends in U+FFFD, which no character can cause for longer than its four bytes.
    """

    context_tokens = 4

    def __init__(self, decoder: LibraryDecoder | None, kinds: list[str], added_tokens: frozenset[str]) -> None:
        self._decoder = decoder
        self._added_tokens = added_tokens
        self._byte_tokens = "ByteFallback" in kinds
        self._byte_level = "ByteLevel" in kinds

    def seed(self, tail: Sequence[str]) -> Window:
        return Window(tuple(tail))

    def push(self, window: Window, tokens: Sequence[str], *, join_added: bool = False) -> tuple[str, Window]:
        context, pending = window.context, window.pending
        parts: list[str] = []
        for token in tokens:
            run_ends = self._byte_tokens and pending and not _BYTE_TOKEN.fullmatch(token)
            if run_ends:
                parts.append(self._added(context, pending))
                context, pending = self._keep(context + pending), ()
            joined = (
                join_added and not pending and token in self._added_tokens and context[-1:] and context[-1] in self._added_tokens
            )
            pending = (*pending, token)
            text = token if joined else self._added(context, pending)
            if self._waits(token, text, len(pending)):
                continue
            parts.append(text)
            context, pending = self._keep(context + pending), ()
        return "".join(parts), Window(context, pending)

    def finish(self, window: Window) -> str:
        pending = window.pending
        if self._byte_tokens:
            run = b"".join(bytes([int(m[1], 16)]) for token in pending if (m := _BYTE_TOKEN.fullmatch(token)))
            pending = pending[: len(pending) - incomplete_tail(run)]
        text = self._added(window.context, pending) if pending else ""
        return text.rstrip(REPLACEMENT) if self._byte_level else text

    def piece(self, token: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(token) if self._byte_tokens else None
        # After itself a token is surely inside a text, so that it keeps its leading space.
        return bytes([int(match[1], 16)]) if match else self._added((token,), (token,)).encode("utf-8", "surrogatepass")

    def _added(self, context: tuple[str, ...], tokens: tuple[str, ...]) -> str:
        return self._decode(context + tokens)[len(self._decode(context)) :]

    def _decode(self, tokens: tuple[str, ...]) -> str:
        if not tokens:
            return ""
        return self._decoder.decode(list(tokens)) if self._decoder is not None else " ".join(tokens)

    def _waits(self, token: str, text: str, count: int) -> bool:
        if self._byte_tokens and _BYTE_TOKEN.fullmatch(token):
            return count < MAX_RUN
        return self._byte_level and text.endswith(REPLACEMENT) and count < _LONGEST_CHARACTER

    def _keep(self, tokens: tuple[str, ...]) -> tuple[str, ...]:
        return tokens[-self.context_tokens :]
