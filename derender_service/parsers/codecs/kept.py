"""Text that is kept while it is not known whether it is markup."""

import re

MAX_WHITE = 256
"""White space in a row that is kept. A model may fall into writing it without end, and a state is bounded."""

_ENDLESS = re.compile(rf"(\s{{{MAX_WHITE}}})\s+")


def kept(raw: str, text: str) -> str:
    """`raw`, with further text."""
    return raw + addition(raw, text)


def addition(raw: str, text: str) -> str:
    """What of further text is kept after `raw`."""
    tail = raw[-MAX_WHITE:]
    return _ENDLESS.sub(r"\1", tail + text)[len(tail) :]
