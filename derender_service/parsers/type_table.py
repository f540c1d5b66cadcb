"""The tools' parameter types in the state: packed, since later chunks bring no tools (and most formats need none)."""

import base64
import json
import zlib
from functools import lru_cache

from pydantic import TypeAdapter, ValidationError

from derender_service.parsers.codecs.parameter_types import Kind
from derender_service.parsers.run import Types

MAX_PACKED = 262_144
MAX_GROWTH = 32
"""How much larger a table may be than its packed form: what a small body can ask for stays small work."""

_TABLE: TypeAdapter[dict[str, dict[str, Kind]]] = TypeAdapter(dict[str, dict[str, Kind]])


class BrokenTable(ValueError):
    """Not a table that `pack` made."""


def pack(types: Types) -> str:
    """Empty for an empty table. Raises `BrokenTable` for one that is too large to travel."""
    if not types:
        return ""
    table = json.dumps(types, ensure_ascii=False, separators=(",", ":")).encode()
    packed = base64.b85encode(zlib.compress(table, 9)).decode()
    if len(table) > MAX_GROWTH * len(packed):
        packed = base64.b85encode(zlib.compress(table, 0)).decode()
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
        data = reader.decompress(base64.b85decode(packed), MAX_GROWTH * len(packed))
        table = _TABLE.validate_json(data) if reader.eof else None
    except (ValidationError, ValueError, zlib.error) as error:
        raise BrokenTable("parameter_types are not what a derender service packed") from error
    if table is None:
        raise BrokenTable("parameter_types are cut short, or unpack to too much")
    return table
