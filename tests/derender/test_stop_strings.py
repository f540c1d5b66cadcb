"""Stop strings: the cut depends on the text alone, never on how it was sliced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derender_service.stop_strings import scan

alphabet = st.text("ab<E", max_size=14)
stop_lists = st.lists(st.text("ab<E", min_size=1, max_size=4), min_size=1, max_size=4)


def one_character_at_a_time(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The meaning, spelled out: the text grows by a character until some stop string ends it; the longest such counts."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def sliced(pieces: list[str], stops: list[str], include: bool) -> tuple[str, str | None]:
    sent, held = "", ""
    for piece in pieces:
        found = scan(held, piece, stops, include=include)
        sent, held = sent + found.text, found.held
        if found.matched is not None:
            return sent, found.matched
    return sent + held, None


@given(st.lists(alphabet, max_size=6), stop_lists, st.booleans())
def test_slices_do_not_matter(pieces: list[str], stops: list[str], include: bool) -> None:
    assert sliced(pieces, stops, include) == one_character_at_a_time("".join(pieces), stops, include)


@given(st.lists(alphabet, max_size=6), stop_lists)
def test_only_what_may_still_become_a_stop_string_is_held(pieces: list[str], stops: list[str]) -> None:
    held = ""
    for piece in pieces:
        found = scan(held, piece, stops, include=False)
        if found.matched is not None:
            return
        held = found.held
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "sent"),
    [
        (["mn", "o", "pqr", "s"], ["mnopqrs"], ""),
        (["mn", "o", "pqr", "x"], ["mnopqrs"], "mnopqrx"),
        (["London"], ["Lond"], ""),
        (["one ", "EN", "D two"], ["END"], "one "),
    ],
)
def test_borders_of_tokens_do_not_matter(pieces: list[str], stops: list[str], sent: str) -> None:
    """R53 and R55."""
    assert sliced(pieces, stops, include=False)[0] == sent
