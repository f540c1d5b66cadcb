"""One payload of a stream of events, as the JSON object that it has to be."""

import json

from protocol.base import JsonObject


def read_object(data: str) -> JsonObject:
    """Raises `ValueError` that says what it is instead."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a payload that is no JSON: {data[:100]!r}") from error
    if not isinstance(value, dict):
        raise ValueError(f"a payload that is no object: {data[:100]!r}")
    return value
