"""Token ids as a parser sees them: runs of text, and the markers that are tokens of their own."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from derender_service.detokenizer import Detokenizer
from derender_service.window import Window


class Text(NamedTuple):
    """Text and the ids that it was read from. Some of it may still wait in the window: then it comes with a later piece."""

    text: str
    ids: Sequence[int]


class Mark(NamedTuple):
    """A marker as a token. The same characters spelled by ordinary tokens are `Text`: they are no markup."""

    text: str
    id: int


Piece = Text | Mark


def pieces(
    detokenizer: Detokenizer,
    marks: Mapping[int, str],
    window: Window,
    token_ids: Sequence[int],
    *,
    keep_special: bool,
    join_added: bool,
) -> tuple[list[Piece], Window]:
    """The pieces of these ids, and the window to go on with. `marks` are the marker tokens, as text by id.

    A marker ends the character before it: bytes that wait for more become U+FFFD, as in `Tokenizer.decode` of the whole.
    """
    found: list[Piece] = []
    if marks.keys().isdisjoint(token_ids):
        text, window = detokenizer.push(window, token_ids, keep_special=keep_special, join_added=join_added)
        return [Text(text, token_ids)], window
    start = 0
    for place, token_id in enumerate(token_ids):
        mark = marks.get(token_id)
        if mark is None:
            continue
        run = token_ids[start:place]
        text, window = detokenizer.push_marked(window, run, token_id, keep_special=keep_special, join_added=join_added)
        text = text.removesuffix(mark)
        if run or text:
            found.append(Text(text, run))
        found.append(Mark(mark, token_id))
        start = place + 1
    if start < len(token_ids):
        run = token_ids[start:]
        text, window = detokenizer.push(window, run, keep_special=keep_special, join_added=join_added)
        found.append(Text(text, run))
    return found, window
