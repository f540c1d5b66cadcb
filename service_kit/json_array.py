"""Cuts a JSON array into its elements without reading them, so that what is wrong with one of them is wrong with that one alone."""

import re

from protocol.errors import BadRequest

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_WITHIN = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
_BETWEEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+", re.DOTALL)
"""What may be skipped in one go: within an element's brackets all up to the next one, outside of them also no comma.

The quantifiers are possessive: no text makes them go back, so the time is linear in the body whatever it holds.
"""

_SPACE = b" \t\r\n"
_OPENING = re.compile(rb"[ \t\r\n]*\[")


def elements(body: bytes, *, limit: int) -> list[bytes]:
    """The text of each element, in order. Whether it is JSON is for its reader to find: brackets are counted, not matched.

    Raises `BadRequest` for what is no array, is cut off, has an element of no text at all, or has more than `limit` elements.
    """
    opening = _OPENING.match(body)
    if opening is None:
        raise BadRequest("the body must be a JSON array")
    found: list[bytes] = []
    start = at = opening.end()
    depth = 0
    while True:
        skipped = (_WITHIN if depth else _BETWEEN).match(body, at)
        at = skipped.end() if skipped else at
        mark = body[at : at + 1]
        at += 1
        if mark in (b"{", b"["):
            depth += 1
        elif depth and mark in (b"}", b"]"):
            depth -= 1
        elif mark in (b",", b"]"):
            found.append(body[start : at - 1].strip(_SPACE))
            if mark == b"]":
                break
            if len(found) >= limit:
                raise BadRequest(f"the array has more than {limit} items; send the rest in further calls")
            start = at
        else:
            # Nothing, a quote that no other quote closes, or a bracket that closes what was not opened.
            raise BadRequest("the body is no JSON array: it is cut off, or a string or bracket in it is not closed")
    if body[at:].strip(_SPACE):
        raise BadRequest("the body must be one JSON array, with nothing after it")
    if found == [b""]:
        return []
    if b"" in found:
        raise BadRequest(f"item {found.index(b'')} of the array is empty: there is a comma too many")
    return found
