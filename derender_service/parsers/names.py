"""Names of functions, as models write them."""

import re

MAX_NAME = 256
"""Characters. OpenAI allows 64; the tools of a request may have this many (see `protocol.tools.Function`)."""

_NAME = re.compile(r"""[^\s"'`<>{}()\[\],;]{1,256}""")


def is_name(text: str) -> bool:
    """Whether this can be a function's name: no white space, no brackets or quotes. Whether such a tool exists is not asked."""
    return _NAME.fullmatch(text) is not None
