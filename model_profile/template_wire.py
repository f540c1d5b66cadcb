"""What the service and the processes that run strangers' templates tell each other: JSON in frames, over pipes.

The service trusts nothing that comes back: a frame's length is checked by its reader, and so is what it holds.
"""

import json
import struct
from collections.abc import Iterable
from dataclasses import fields
from itertools import chain
from typing import Any

from model_profile.provenance import Traced, runs, untraced
from model_profile.template import TemplateInput

HEADER = struct.Struct("!Q")
OUT_OF_MEMORY = 70
"""The exit code of a process that has no memory left to say so."""

JsonObject = dict[str, Any]


def frame(value: Any) -> bytes:
    # Half characters, which JSON's escapes can spell, must not grow together on the way.
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(body)) + body


def unframed(body: bytes | bytearray) -> Any:
    """Raises `ValueError`."""
    return json.loads(body.decode("utf-8", "surrogatepass"))


def input_as_json(given: TemplateInput) -> JsonObject:
    return {field.name: getattr(given, field.name) for field in fields(given)}


def traced_as_json(text: Traced) -> JsonObject:
    """The text, and for each run of characters of one source its length and its source."""
    found = ((len(run), ord(run[0])) for _, run in runs(text))
    return {"text": untraced(text), "runs": list(chain.from_iterable(found))}


def traced_from_json(text: str, flat: Iterable[int]) -> Traced:
    """Raises `ValueError` where the runs are not the text's."""
    lengths, sources = list(flat)[::2], list(flat)[1::2]
    if min(lengths, default=0) < 0 or sum(lengths) != len(text):
        raise ValueError("the sources are not as long as the text")
    return Traced(text, "".join(chr(source) * length for length, source in zip(lengths, sources, strict=True)))
