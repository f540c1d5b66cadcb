"""The tools' parameter types in the state: packed, since later chunks bring no tools (and most formats need none)."""

import base64
import binascii
import json
import zlib
from functools import lru_cache

from pydantic import TypeAdapter, ValidationError

from derender_service.parsers.codecs.parameter_types import Kind
from derender_service.parsers.run import Types

MAX_PACKED = 262_144
MAX_UNPACKED = 8 * MAX_PACKED
_TABLE: TypeAdapter[dict[str, dict[str, Kind]]] = TypeAdapter(dict[str, dict[str, Kind]])


class BrokenTable(ValueError):
    """Not a table that `pack` made."""


def pack(types: Types) -> str:
    """Empty for an empty table. Raises `BrokenTable` for one that is too large to travel."""
    if not types:
        return ""
    packed = base64.b85encode(zlib.compress(json.dumps(types, ensure_ascii=False, separators=(",", ":")).encode(), 9)).decode()
    if len(packed) > MAX_PACKED:
        raise BrokenTable(f"the tools have more parameters than a stream can carry ({MAX_PACKED} bytes, compressed)")
    return packed


def unpack(packed: str) -> Types:
    """Raises `BrokenTable`."""
    return _unpack(packed) if len(packed) <= _MEMORABLE else _unpack.__wrapped__(packed)


_MEMORABLE = 4096


@lru_cache(maxsize=256)
def _unpack(packed: str) -> Types:
    if not packed:
        return {}
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(base64.b85decode(packed), MAX_UNPACKED)
        if not reader.eof:
            raise BrokenTable("parameter_types are cut short, or unpack to too much")
        return _TABLE.validate_json(data)
    except (ValidationError, ValueError, zlib.error, binascii.Error) as error:
        raise BrokenTable("parameter_types are not what a derender service packed") from error
