"""Turns in ids: where the assistant's begin, and whether the last one that was begun is the assistant's.

A turn's beginning is told by its own ids, which no client's text spells, whatever stands behind it: what the client put there for
the model to go on from, or what the template of another day, or with other variables, had there.
"""

from collections.abc import Collection, Iterator, Sequence


def last_begun(ids: Sequence[int], beginning: Sequence[int], marks: Collection[int]) -> int | None:
    """Where the assistant's turn begins that is still open at the end of `ids`; None where none is. `marks`: ids that begin any
    turn, or end one."""
    at = next((place for place in range(len(ids) - 1, -1, -1) if ids[place] in marks), None)
    return at if at is not None and beginning and list(ids[at : at + len(beginning)]) == list(beginning) else None


def spans(ids: Sequence[int], beginning: Sequence[int], marks: Collection[int]) -> Iterator[range]:
    """The places within the assistant's turns, behind their beginnings."""
    begun = None
    for place, token in enumerate(ids):
        if token not in marks:
            continue
        if begun is not None:
            yield range(begun, place + 1)
        begins = list(ids[place : place + len(beginning)]) == list(beginning)
        begun = place + len(beginning) if begins else None
    if begun is not None:
        yield range(begun, len(ids))
