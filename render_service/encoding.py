"""Text to token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from tokenizers import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """`added`: 1 for what the tokenizer put around the text by itself. `offsets`: each token's span in the text, in characters;
    None where nobody asked."""

    ids: list[int]
    added: list[int]
    offsets: list[Span] | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """Ids, and for each the message that it is of, or `OUTSIDE`."""

    ids: list[int]
    messages: list[int]

    @classmethod
    def of(cls, ids: list[int], message: int) -> "Marked":
        return cls(ids, [message] * len(ids))

    def __add__(self, other: "Marked") -> "Marked":
        return Marked([*self.ids, *other.ids], [*self.messages, *other.messages])


class TooManyTokens(ValueError):
    """A text gives more tokens than are wanted of it: `count` at least."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} tokens")
        self.count = count


def encode(
    tokenizer: Tokenizer, text: str, *, add_special_tokens: bool, with_offsets: bool = False, limit: int | None = None
) -> Encoded:
    """Raises `TooManyTokens` past `limit`, before millions of ids become Python's."""
    # The library's `encode` holds the interpreter's lock all the way, which stops the event loop too (law L10); batches let go.
    batch = tokenizer.encode_batch if with_offsets else tokenizer.encode_batch_fast
    (found,) = batch([text], add_special_tokens=add_special_tokens)
    if limit is not None and len(found) > limit:
        raise TooManyTokens(len(found))
    return Encoded(found.ids, found.special_tokens_mask, found.offsets if with_offsets else None)


def differs_from(anew: Marked, ids: list[int], tokenizer: Tokenizer) -> int | None:
    """The message in which the text of `anew` begins to differ from that of `ids`; None where it does not."""
    groups: list[tuple[int, list[int]]] = [
        (message, [anew.ids[at] for at, _ in run]) for message, run in groupby(enumerate(anew.messages), itemgetter(1))
    ]
    as_it_is, *texts = tokenizer.decode_batch([ids, *(group for _, group in groups)], skip_special_tokens=False)
    text = "".join(texts)
    if text == as_it_is:
        return None
    ends = accumulate(map(len, texts))
    same = common(as_it_is, text)
    return next((message for (message, _), end in zip(groups, ends, strict=True) if end > same), groups[-1][0])


def ends_with(ids: Sequence[int], end: Sequence[int]) -> bool:
    return len(end) <= len(ids) and list(ids[len(ids) - len(end) :]) == list(end)


def common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with: characters, or ids."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))
