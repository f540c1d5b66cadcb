"""Server-sent events survive any way the bytes may be sliced (R13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sse import KEEP_ALIVE, ServerSentEvent, SSEDecoder, SSEError, encode

lines = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12)
payloads = st.lists(lines, min_size=1, max_size=3).map("\n".join)
names = st.none() | st.sampled_from(["token", "done", "error"])
events = st.lists(st.tuples(payloads, names), max_size=6)


def slices(draw: st.DrawFn, data: bytes) -> list[bytes]:
    borders = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]


def decoded(pieces: list[bytes]) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@given(events, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_any_slicing_and_any_line_end_give_the_same_events(
    sent: list[tuple[str, str | None]], line_end: bytes, data: st.DataObject
) -> None:
    raw = b"".join(KEEP_ALIVE + encode(payload, name) for payload, name in sent).replace(b"\n", line_end)
    pieces = data.draw(st.composite(slices)(raw))
    assert decoded(pieces) == [ServerSentEvent(payload, name) for payload, name in sent]


@given(events)
def test_one_byte_at_a_time(sent: list[tuple[str, str | None]]) -> None:
    raw = b"".join(encode(payload, name) for payload, name in sent)
    assert decoded([bytes([byte]) for byte in raw]) == [ServerSentEvent(payload, name) for payload, name in sent]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data:no space\n\n", ["no space"]),
        (b"data:  two\n\n", [" two"]),
        (b"data\n\n", [""]),
        (b"event: x\n\ndata: y\n\n", ["y"]),
        (b": only a comment\n\n", []),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", ["after a byte order mark"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"retry: 5\nunknown: 1\ndata: c\n\n", ["c"]),
        (b"data: cut off", []),
        (b"data: cut off\n", []),
    ],
)
def test_the_standards_corners(raw: bytes, expected: list[str]) -> None:
    assert [event.data for event in decoded([raw])] == expected


def test_an_event_that_never_ends_is_an_error_and_not_a_leak() -> None:
    decoder = SSEDecoder(max_event_bytes=100)
    for _ in range(6):
        decoder.feed(b"data: 0123456789\n")
    with pytest.raises(SSEError, match="100 bytes"):
        decoder.feed(b"data: 0123456789\n")


def test_a_cut_off_event_is_seen() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"data: x\n\n")
    assert not decoder.pending
    decoder.feed(b"data: y")
    assert decoder.pending
