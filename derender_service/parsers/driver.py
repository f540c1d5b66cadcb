"""Runs a grammar over pieces: `(state, pieces) -> (events, state)`. Whole outputs and chunks of streams go the same way."""

from collections.abc import Sequence
from typing import NamedTuple

from derender_service.parsers.events import Event
from derender_service.parsers.grammar import Grammar
from derender_service.parsers.pieces import Mark, Piece
from derender_service.parsers.run import Run, Types, merged
from derender_service.parsers.state import State


class Reading(NamedTuple):
    """`reasoning_tokens`: how many of the ids were reasoning, markers not counted; None where one piece of several ids held
    both, so that only reading id by id can tell."""

    events: list[Event]
    state: State
    reasoning_tokens: int | None


def read(
    grammar: Grammar,
    state: State,
    pieces: Sequence[Piece],
    *,
    last: bool,
    types: Types,
    named: str = "",
    ended: bool = False,
) -> Reading:
    """Reads pieces from where `state` stands. `last`: the output ends with them; `ended`: because the model ended it, not because
    it was cut.

    Any cut of the same pieces gives the same events (law L1): what may still become a marker is held, at most the longest
    marker and the white space before it. `state` must be one of this grammar's: see `checkpoint`.
    """
    run = Run(grammar.regions, state.copied(), grammar.tokens, types, named)
    count: int | None = 0
    for piece in pieces:
        thinking, run.crossed = run.region.thinking, False
        ids = 1
        if isinstance(piece, Mark) or piece.text or run.region.by_id:
            run.read(piece)
        if not isinstance(piece, Mark):
            ids = len(piece.ids)
            if run.crossed and ids > 1:
                count = None
        if thinking and not run.crossed and count is not None:
            count += ids
    if last:
        run.finish(ended=ended)
    return Reading(merged(run.events), run.saved(), count)
