"""Stop strings: the cut depends on the text alone, never on how it was sliced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derender_service.stop_strings import scan
from tests.derender.parsed import assembled, chat_request, chunks_of, cuts, derenderer, encode, stream, whole

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


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("stop", [["END"], ["zz", "END"], ["e END", "END"], [" END", "END"], ["END!", "END"]])
def test_a_worker_that_stops_at_the_stop_strings_own_token_changes_nothing(stop: list[str], include: bool) -> None:
    """Render names that token to the worker: text and reason are those of a worker that knows nothing of it."""
    own = derenderer("smollm2", None, None)
    ids = [*encode("smollm2", "one "), *encode("smollm2", "END")]
    request = chat_request(stop=stop, include_stop_str_in_output=include)
    unaware = whole(own, [*ids, *encode("smollm2", " two")], request, finish="length")
    aware = whole(own, ids, request, finish="stop", stop_reason=ids[-1])
    assert aware == {**unaware, "usage": aware["usage"]}
    assert unaware["stop_reason"] in stop
    for parts in cuts(ids):
        found, _ = stream(own, chunks_of(parts, "stop", stop_reason=ids[-1]), request)
        assert assembled(found) == {key: unaware[key] for key in ("message", "finish_reason", "stop_reason")}
