"""Texts that were tokenized before are not tokenized again: a conversation's turns, a system message, a list of tools.

A text is cut where nothing on one side can change the ids of the other: at control tokens, and within long pieces at ends of lines.
Each piece is looked up by its exact text, so the ids are those of the whole text tokenized at once. Whether a tokenizer can be cut
at these places is learned by trying: where it cannot, it is not, down to no cache at all.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from tokenizers import Tokenizer

from render_service.control_tokens import ControlTokens
from render_service.encoding import Encoded, TooManyTokens, encode

BLOCK = 2048
"""Characters. A longer piece is cut at the first end of a line behind so many: texts that begin alike share their blocks."""
_ONE_CALL = 16_384
"""Characters of unknown pieces. No more than that is tokenized in one go; more of it on several cores."""
_BATCH = 262_144
"""Characters, about, that are tokenized at once: a hopeless text is not tokenized to its end."""
_OVERHEAD = 200
"""Bytes: what an entry takes beside its text and ids, about."""

_LEFT = ("a", "A", "1", ".", "?!", ")", " ", "a ", "\t", "'", "é", "日", "e\u0301", "_", "-", "👩\u200d", "\r", "\n", "\n\n", "")
_RIGHT = ("a", "b1", "Z", "aB", "s", "x.", "word ", "if (x)", "an\n", "the's")


class TokenizerCache:
    """Ids of pieces, the latest used kept, up to `max_bytes` of memory. One for a process; threads may share it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        control_tokens: ControlTokens,
        max_bytes: int,
        *,
        counted: Callable[[int, int], None] = lambda known, new: None,
    ) -> None:
        """`counted` is told of each text how many of its characters were known, and how many were new."""
        self._tokenizer, self._control_tokens, self._max_bytes = tokenizer, control_tokens, max_bytes
        self._entries: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        self._separator = control_tokens.one_to_stand_behind()
        self.usable = max_bytes > 0 and self._separator is not None and self._independent_at(self._separator[0])
        self._lines = self.usable and self._independent_at_lines()
        self._counted = counted
        self._around = self._put_around()

    def encode(self, text: str, *, add_special_tokens: bool, limit: int | None = None) -> Encoded:
        """Raises `TooManyTokens` past `limit`."""
        if not self.usable or (add_special_tokens and self._around is None):
            return encode(self._tokenizer, text, add_special_tokens=add_special_tokens, limit=limit)
        ids = self._ids(text, limit)
        if not add_special_tokens or self._around is None:
            return Encoded(ids, [0] * len(ids))
        before, behind = self._around
        return Encoded([*before, *ids, *behind], [*[1] * len(before), *[0] * len(ids), *[1] * len(behind)])

    def _ids(self, text: str, limit: int | None) -> list[int]:
        parts = list(self._parts(text))
        pieces = dict.fromkeys(part for part in parts if isinstance(part, str))
        known = self._known(pieces)
        old = sum(map(len, known))
        unknown = [piece for piece in pieces if piece not in known]
        room = None if limit is None else limit - sum(map(len, known.values()))
        for piece, ids in zip(unknown, self._tokenized(unknown, room), strict=True):
            known[piece] = array("i", ids)
        self._keep(known, unknown)
        self._counted(old, sum(map(len, unknown)))
        count = sum(len(known[part]) if isinstance(part, str) else 1 for part in parts)
        if limit is not None and count > limit:
            raise TooManyTokens(count)
        found: list[int] = []
        for part in parts:
            if isinstance(part, str):
                found.extend(known[part])
            else:
                found.append(part)
        return found

    def _parts(self, text: str) -> Iterable[str | int]:
        """Pieces of text, and the ids of the control tokens between."""
        end = 0
        for token, start, stop in self._control_tokens.spans(text):
            yield from self._blocks(text[end:start])
            yield token
            end = stop
        yield from self._blocks(text[end:])

    def _blocks(self, piece: str) -> Iterable[str]:
        start = 0
        while self._lines and len(piece) - start > BLOCK:
            end = _line_end(piece, start + BLOCK)
            if end < 0:
                break
            yield piece[start:end]
            start = end
        if start < len(piece):
            yield piece[start:]

    def _tokenized(self, pieces: Sequence[str], limit: int | None) -> list[list[int]]:
        """Each piece's ids. Raises `TooManyTokens` as soon as there are more than `limit`."""
        if not pieces:
            return []
        if sum(map(len, pieces)) <= _ONE_CALL:
            return self._in_one_go(pieces)
        ids: list[list[int]] = []
        count = 0
        for batch in _batches(pieces):
            made = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            count += sum(map(len, made))
            if limit is not None and count > limit:
                raise TooManyTokens(count)
            ids += [each.ids for each in made]
        return ids

    def _in_one_go(self, pieces: Sequence[str]) -> list[list[int]]:
        assert self._separator is not None
        content, separator = self._separator
        runs: list[list[int]] = [[]]
        for token in encode(self._tokenizer, content.join(pieces), add_special_tokens=False).ids:
            if token == separator:
                runs.append([])
            else:
                runs[-1].append(token)
        return runs

    def _known(self, pieces: Iterable[str]) -> "dict[str, array[int]]":
        with self._lock:
            found = {piece: self._entries[piece] for piece in pieces if piece in self._entries}
            for piece in found:
                self._entries.move_to_end(piece)
            return found

    def _keep(self, known: "dict[str, array[int]]", new: Sequence[str]) -> None:
        with self._lock:
            for piece in new:
                if piece not in self._entries:
                    self._entries[piece] = known[piece]
                    self.bytes += _size(piece, known[piece])
            while self.bytes > self._max_bytes:
                piece, ids = self._entries.popitem(last=False)
                self.bytes -= _size(piece, ids)

    def _put_around(self) -> tuple[list[int], list[int]] | None:
        """The ids that the tokenizer puts before and behind every text; None if it does something else."""
        found = encode(self._tokenizer, "a b", add_special_tokens=True)
        if not all(found.added) and found.ids:
            first = found.added.index(0)
            last = len(found.added) - 1 - found.added[::-1].index(0)
            if found.ids[first : last + 1] == self._ids_of("a b"):
                return found.ids[:first], found.ids[last + 1 :]
        return None

    def _independent_at(self, content: str) -> bool:
        """Whether text on one side of a control token is tokenized alike whatever is on the other, and at the text's ends."""
        return all(
            self._ids_of(f"{left}{content}{right}") == [*self._ids_of(left), *self._ids_of(content), *self._ids_of(right)]
            for left, right in product(_LEFT, (" a", "\n", *_LEFT, *_RIGHT))
        )

    def _independent_at_lines(self) -> bool:
        """Whether it is so too at an end of line between a character that shows and a letter of ASCII."""
        return all(
            self._ids_of(f"{left}\n{right}") == [*self._ids_of(f"{left}\n"), *self._ids_of(right)]
            for left, right in product((left for left in _LEFT if left and not left[-1].isspace()), _RIGHT)
        )

    def _ids_of(self, text: str) -> list[int]:
        return encode(self._tokenizer, text, add_special_tokens=False).ids


def _batches(pieces: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _line_end(text: str, start: int) -> int:
    """Behind the first line break from `start` on between a character that shows and a letter of ASCII; -1 if there is none."""
    at = text.find("\n", start) + 1
    while 0 < at < len(text):
        if text[at].isascii() and text[at].isalpha() and not text[at - 2].isspace():
            return at
        at = text.find("\n", at) + 1
    return -1


def _size(piece: str, ids: "array[int]") -> int:
    width = 1 if piece.isascii() else 2 if max(piece) < "\U00010000" else 4
    return _OVERHEAD + len(piece) * width + len(ids) * ids.itemsize
