"""Text that is kept while it is not known whether it is markup."""

import re

MAX_WHITE = 256
"""White space in a row that is kept. A model may fall into writing it without end, and a state is bounded."""

_ENDLESS = re.compile(rf"(\s{{{MAX_WHITE}}})\s+")


def kept(raw: str, text: str) -> str:
    """`raw`, with further text."""
    if not text:
        return raw
    tail = raw[-MAX_WHITE:]
    return raw[: len(raw) - len(tail)] + _ENDLESS.sub(r"\1", tail + text)
