"""SentencePiece with byte fallback (Llama 2, Gemma, Mistral): tokens are text, and 256 byte tokens spell what has no token."""

import re
from collections.abc import Sequence
from itertools import chain

from derender_service.utf8 import REPLACEMENT, incomplete_tail
from derender_service.window import Window

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

MAX_RUN = 96
"""Byte tokens that may wait. A longer run of whole characters is read in parts, so that the state stays bounded."""


class ByteFallbackDecoder:
    """Equals the library's Replace, ByteFallback, Fuse, Strip.

    There a run of neighbouring byte tokens is text only if the *whole* run is valid UTF-8; else each of its bytes is one U+FFFD.
    So a run waits while it may still be valid; once it cannot be, only bytes that begin a character wait. In the window a run that
    waits is `pending`; a byte token at the end of the context says that the current run is broken.
    `strip` is the character that is left out once at the very start of a text.
    """

    context_tokens = 1

    def __init__(self, replacements: tuple[tuple[str, str], ...], strip: str | None) -> None:
        self._replacements, self._strip = replacements, strip
        self._pieces: dict[str, str | int] = {}

    def seed(self, tail: Sequence[str]) -> Window:
        # A run of byte tokens does not cross into the output: as context it would say that the output begins in a broken run.
        return Window((REPLACEMENT if isinstance(self._read(tail[-1]), int) else tail[-1],))

    def push(self, window: Window, tokens: Sequence[str], *, join_added: bool = False) -> tuple[str, Window]:
        parts: list[str] = []
        last = window.context[-1] if window.context else ""
        broken = isinstance(self._spelled(last), int)
        run = bytearray()
        given = [(token, self._spelled(token)) for token in window.pending]
        for token, piece in chain(given, zip(tokens, map(self._read, tokens), strict=True)):
            if isinstance(piece, str):
                if run:
                    parts.append(REPLACEMENT * len(run) if broken else _resolve(run))
                    run.clear()
                    last = parts[-1][-1]
                parts.append(piece)
                broken, last = False, (token if piece else last)
                continue
            run.append(piece)
            broken = broken or not _may_be_valid(run)
            if broken:
                shown = len(run) - incomplete_tail(bytes(run))
                parts.append(REPLACEMENT * shown)
                del run[:shown]
                last = token if shown else last
            elif len(run) >= MAX_RUN and not incomplete_tail(bytes(run)):
                parts.append(run.decode())
                run.clear()
                last = parts[-1][-1]
        pending = tuple(f"<0x{byte:02X}>" for byte in run)
        return self._at_start(window, "".join(parts)), Window((last,) if last else (), pending)

    def finish(self, window: Window) -> str:
        text, rest = self.push(window, ())
        run = b"".join(map(self.piece, rest.pending))
        due = run[: len(run) - incomplete_tail(run)].decode("utf-8", "replace")
        return text + (due if text else self._at_start(window, due))

    def piece(self, token: str) -> bytes:
        piece = self._read(token)
        return piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else bytes([piece])

    def _at_start(self, window: Window, text: str) -> str:
        return text.removeprefix(self._strip) if self._strip and not window.context else text

    def _read(self, token: str) -> str | int:
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._spelled(token)
        return known

    def _spelled(self, token: str) -> str | int:
        """Not kept: a window comes from a client, and may spell anything. `_read` keeps what the vocabulary has."""
        for old, new in self._replacements:
            token = token.replace(old, new)
        match = _BYTE_TOKEN.fullmatch(token)
        return int(match[1], 16) if match else token


def _may_be_valid(run: bytearray) -> bool:
    try:
        run[: len(run) - incomplete_tail(bytes(run))].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _resolve(run: bytearray) -> str:
    try:
        return run.decode("utf-8")
    except UnicodeDecodeError:
        return REPLACEMENT * len(run)
