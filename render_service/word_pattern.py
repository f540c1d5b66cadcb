"""One regular expression for thousands of words, by what they begin with. (Python tries the branches of an alternation in turn.)"""

import re
from collections.abc import Iterable
from typing import Any

_END = ""


def longest_of(words: Iterable[str]) -> str:
    """An expression that matches the longest of `words` that begins where it is tried."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for character in word:
            node = node.setdefault(character, {})
        node[_END] = {}
    return _expression(tree)


def _expression(node: dict[str, Any]) -> str:
    literal = ""
    while len(node) == 1 and _END not in node:
        ((character, node),) = node.items()
        literal += re.escape(character)
    branches = [re.escape(character) + _expression(child) for character, child in node.items() if character != _END]
    if not branches:
        return literal
    # What may go on is tried before what may end, so the longest word wins.
    return f"{literal}(?:{'|'.join(branches)}){'?' if _END in node else ''}"
