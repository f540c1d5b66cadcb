"""Where a UTF-8 text may be cut."""

REPLACEMENT = "\ufffd"


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end (0 to 3) begin a character that later bytes may complete.

    UTF-8 synchronises itself: only the last three bytes matter, and what precedes a lead byte cannot change its meaning.
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            return back if _may_grow(data[-back:]) else 0
    return 0


def _may_grow(prefix: bytes) -> bool:
    # Strict decoding says "unexpected end of data" for a good beginning, and something else for a bad one (E0 80, ED A0, F5 ...).
    try:
        prefix.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start == 0
    return False
