"""Byte-level BPE: each character of a token is one byte of the text (see `model_profile.byte_alphabet`)."""

from collections.abc import Sequence

from derender_service.utf8 import incomplete_tail
from derender_service.window import START, Window
from model_profile.byte_alphabet import BYTE_OF, CHARACTER_OF


class ByteLevelDecoder:
    """A chunk is one join of table entries and one UTF-8 decode. At most three bytes wait.

    They wait as one made-up token spelling just these bytes, so a token that ends one character and begins the next needs no
    special care, and vLLM's decoder can read the window as well. A prompt may end within a character: its last bytes then stand
    in the context and count as shown, so the output begins after that character.
    """

    context_tokens = 4

    def __init__(self) -> None:
        self._pieces: dict[str, bytes] = {}

    def seed(self, tail: Sequence[str]) -> Window:
        return Window(tuple(tail)) if self._dangling(tail) else START

    def push(self, window: Window, tokens: Sequence[str], *, join_added: bool = False) -> tuple[str, Window]:
        shown = self._dangling(window.context) if window.context else b""
        data = shown + b"".join(map(_bytes_of, window.pending)) + b"".join(map(self.piece, tokens))
        waiting = incomplete_tail(data)
        body, tail = (data[:-waiting], data[-waiting:]) if waiting else (data, b"")
        if shown and not body:
            return "", Window(window.context, _spelled(tail[len(shown) :]))
        text = body.decode("utf-8", "replace")
        return (text[1:] if shown else text), Window((), _spelled(tail))

    def finish(self, window: Window) -> str:
        return ""

    def piece(self, token: str) -> bytes:
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = _bytes_of(token)
        return known

    def _dangling(self, context: Sequence[str]) -> bytes:
        data = b"".join(map(_bytes_of, context))
        return data[len(data) - incomplete_tail(data) :]


def _bytes_of(token: str) -> bytes:
    """Not kept: a window comes from a client, and may spell anything. `piece` keeps what the vocabulary has."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:  # an added token outside the alphabet: its own UTF-8
        return token.encode("utf-8", "surrogatepass")


def _spelled(data: bytes) -> tuple[str, ...]:
    return ("".join(CHARACTER_OF[byte] for byte in data),) if data else ()
