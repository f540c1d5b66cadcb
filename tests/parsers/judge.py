"""Whether an answer is the right one: the rules by which the given cases are compared."""

import json
from typing import Any

from tests.parsers.kit import Answer


def wrong(answer: Answer, expected: dict[str, Any]) -> str:
    """What differs, "" for nothing. White space around reasoning and content does not count, nor does the layout of arguments."""
    for channel in ("reasoning", "content"):
        own, right = getattr(answer, channel), expected[channel] or ""
        if own.strip() != right.strip():
            return f"{channel}: {own!r} is not {right!r}"
    names, right_names = [name for name, _ in answer.calls], [call["name"] for call in expected["tool_calls"]]
    if names != right_names:
        return f"calls: {names} are not {right_names}"
    found = (_wrong_call(text, call) for (_, text), call in zip(answer.calls, expected["tool_calls"], strict=True))
    return next(filter(None, found), "")


def _wrong_call(arguments: str, expected: dict[str, Any]) -> str:
    right = expected["arguments"]
    if expected.get("args_partial"):
        if not right.startswith(arguments):
            return f"cut arguments: {arguments!r} is no beginning of {right!r}"
        return f"cut arguments look whole: {arguments!r}" if _is_json(arguments) else ""
    if not _is_json(right):
        return "" if arguments == right else f"raw arguments: {arguments!r} are not {right!r}"
    if not _is_json(arguments):
        return f"arguments are no JSON: {arguments!r}"
    return "" if same_json(json.loads(arguments), json.loads(right)) else f"arguments: {arguments} are not {right}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def same_json(left: Any, right: Any) -> bool:
    """Equality of parsed JSON: `true` is not 1, 10 is 10.0, the order of keys is free."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)
