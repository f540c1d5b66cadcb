"""Text that arrives in pieces, handed on in chunks that mean something: sentences, words or paragraphs.

A `ChunkingStrategy` says what a chunk is, a `Chunker` runs one over a stream:

    chunker = Chunker(strategy("sentence"))
    chunker.feed("It rains. It")  # ["It rains."]
    chunker.feed(" pours")        # []
    chunker.flush()               # ["It pours"]

A chunk is delivered with the delta that completes it, and how the text was sliced into deltas changes no chunk.
"""

import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Literal, Protocol, runtime_checkable

StrategyName = Literal["sentence", "word", "paragraph"]


class ChunkingStrategy(Protocol):
    """What a chunk is. It keeps no state, so one may serve any number of streams.

    A chunk is cut from the text as it stands. Separators between chunks may be left out; a chunk may not also occur in what is left
    out right before it. A `Chunker` forgets each chunk it has delivered, so `text` begins at the start of the stream or right after
    a chunk, that is, with the separator that ended it. Two things keep the slicing from mattering:

    - What is decided stays decided: whatever is appended to `text`, `split` begins with the same chunks.
    - What is delivered does not matter: cut off the first chunks, and `split` finds the others in what is left.
    """

    def split(self, text: str) -> Sequence[str]:
        """The complete chunks of `text`, in order. What could still grow is no part of them."""
        ...

    def flush(self, text: str) -> str | None:
        """`text` has ended: the fragment after its complete chunks, as the last chunk. None where there is nothing to deliver."""
        ...


@runtime_checkable
class Condensing(ChunkingStrategy, Protocol):
    """A strategy that need not read its fragment again with every delta, so that a stream costs what its length is.

    Any other works as well, but has the whole fragment to read each time; where chunks are long that is slow.
    """

    def condense(self, text: str) -> str:
        """A short text that stands for `text`, in which no chunk is complete: whatever is appended to both, `split` finds a chunk
        in both or in neither."""
        ...


class Chunker:
    """Deltas in, whole chunks out. It holds the fragment that no chunk has ended yet, and no more.

    After any prefix of the stream it has delivered just what `split` finds in that prefix. Raises `ValueError` where a strategy
    returns what is no chunk of the text.
    """

    def __init__(self, strategy: ChunkingStrategy) -> None:
        self._strategy = strategy
        self._condensing = strategy if isinstance(strategy, Condensing) else None
        self._fragment, self._gist = StringIO(), ""

    def feed(self, delta: str) -> list[str]:
        """The chunks that `delta` completes."""
        self._fragment.write(delta)
        if self._condensing is not None:
            gist = self._gist + delta
            if not self._condensing.split(gist):
                self._gist = self._condensing.condense(gist)
                return []
        text = self._fragment.getvalue()
        chunks = list(self._strategy.split(text))
        self._hold(text[self._end(text, chunks, "split") :])
        return chunks

    def flush(self) -> list[str]:
        """The stream has ended: its last chunk, or none. The chunker is as new then."""
        text = self._fragment.getvalue()
        last = self._strategy.flush(text)
        chunks = [] if last is None else [last]
        self._end(text, chunks, "flush")
        self._hold("")
        return chunks

    def _hold(self, fragment: str) -> None:
        # (A StringIO, since `+=` on an attribute copies the whole string each time.)
        self._fragment = StringIO()
        self._fragment.write(fragment)
        self._gist = "" if self._condensing is None else self._condensing.condense(fragment)

    def _end(self, text: str, chunks: Sequence[str], method: str) -> int:
        """Where the last of `chunks` ends in `text`."""
        end = 0
        for chunk in chunks:
            returned = f"{type(self._strategy).__name__}.{method} returned"
            if not chunk:
                raise ValueError(f"{returned} an empty chunk; leave it out, there is nothing to deliver")
            at = text.find(chunk, end)
            if at < 0:
                raise ValueError(
                    f"{returned} the chunk {_excerpt(chunk)}, which the text does not have after the chunks before it: "
                    f"{_excerpt(text[end:])}; chunks are cut from the text unchanged and in order"
                )
            end = at + len(chunk)
        return end


def _excerpt(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


# A full stop also stands within numbers and names, so these end a sentence only where white space follows: Latin, Arabic, Armenian,
# Devanagari, Ethiopic, Burmese, Khmer, Mongolian, and the full width stop, which numbers have too. An ellipsis is often no end.
_SPACED = ".!?…‼⁇⁈⁉‽؟۔։।॥።፧፨။។៕᠃．"
_UNSPACED = "。！？｡"
_CLOSING = "\"'”’»›)]}」』）］｝〕〉》】〗〙〛｣〞〟＂＇"
# German and Danish close with what opens elsewhere. Chinese opens with it, and has no space before it that would tell.
_CLOSING_IF_SPACED = "“‘«‹"


def _any(characters: str) -> str:
    return f"[{re.escape(characters)}]"


# Each match runs as far as it can and none can fail after its first character, so a search reads no character twice.
_ENDING = re.compile(
    f"{_any(_UNSPACED)}{_any(_SPACED + _UNSPACED + _CLOSING)}*|{_any(_SPACED)}{_any(_SPACED + _CLOSING + _CLOSING_IF_SPACED)}*"
)


class Sentences:
    """A sentence ends with `.`, `!`, `?` or another script's terminator, one or more, and the quotes and brackets that close after
    it, where white space follows. After the terminators of Chinese and Japanese anything may follow.

    What follows has to be known, as it may be a further terminator or closing mark. White space around sentences belongs to none.
    These are rules and no grammar: an abbreviation with a full stop ends a sentence, a heading without one does not.
    """

    def split(self, text: str) -> list[str]:
        chunks, start = [], 0
        for end in self._ends(text):
            chunks.append(text[start:end].lstrip())
            start = end
        return chunks

    def flush(self, text: str) -> str | None:
        start = 0
        for end in self._ends(text):
            start = end
        return text[start:].strip() or None

    def condense(self, text: str) -> str:
        return next((found[0][0] for found in _ENDING.finditer(text) if found.end() == len(text)), "")

    @staticmethod
    def _ends(text: str) -> Iterator[int]:
        for found in _ENDING.finditer(text):
            follows = text[found.end() : found.end() + 1]
            if follows.isspace() or (follows and found[0][0] in _UNSPACED):
                yield found.end()


class Words:
    """A word is a run of anything but white space; it is complete once white space follows. White space belongs to none."""

    def split(self, text: str) -> list[str]:
        words = text.split()
        return words[:-1] if self._within_word(text) else words

    def flush(self, text: str) -> str | None:
        return text.rsplit(maxsplit=1)[-1] if self._within_word(text) else None

    def condense(self, text: str) -> str:
        return text[-1:]

    @staticmethod
    def _within_word(text: str) -> bool:
        return text != "" and not text[-1].isspace()


_PARAGRAPH_BREAK = re.compile(r"(?:\r?\n){2,}")


class Paragraphs:
    """A paragraph ends where two or more newlines follow, LF or CRLF; it is complete once the second is there, and the rest of the
    run is left out too, whenever it comes.

    All else is kept byte for byte, white space, single newlines and lone CRs included, also in the last paragraph. Only what
    consists of line ends alone is no paragraph.
    """

    def split(self, text: str) -> list[str]:
        return [piece for piece in _PARAGRAPH_BREAK.split(text)[:-1] if _has_content(piece)]

    def flush(self, text: str) -> str | None:
        last = _PARAGRAPH_BREAK.split(text)[-1]
        return last if _has_content(last) else None

    def condense(self, text: str) -> str:
        # (A run of newlines that has begun is within the last two characters: a second newline would have ended the paragraph.)
        return "x" + text[-2:] if _has_content(text) else ""


def _has_content(text: str) -> bool:
    return text.strip("\r\n") != ""


_STRATEGIES: dict[str, ChunkingStrategy] = {"sentence": Sentences(), "word": Words(), "paragraph": Paragraphs()}


def strategy(name_or_strategy: StrategyName | ChunkingStrategy) -> ChunkingStrategy:
    """The strategy of that name; a strategy is returned as it is. Raises `ValueError` for a name that there is none of."""
    if not isinstance(name_or_strategy, str):
        return name_or_strategy
    if name_or_strategy not in _STRATEGIES:
        known = ", ".join(map(repr, _STRATEGIES))
        raise ValueError(f"no chunking strategy is named {name_or_strategy!r}; take one of {known} or your own ChunkingStrategy")
    return _STRATEGIES[name_or_strategy]
