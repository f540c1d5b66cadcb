"""Reads the metadata of a GGUF file (versions 2 and 3, little-endian): the key-value section before the tensors.

The gguf package's reader makes a numpy view per string, some three seconds for a small vocabulary; a text service should start
faster than that, and needs the metadata alone.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

from model_profile.errors import BrokenModel

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


def read(path: Path) -> dict[str, Any]:
    """Key -> value: numbers, booleans, text, and lists of these. Raises `BrokenModel` for what is no whole GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).pairs()
    except (OSError, ValueError, struct.error) as error:
        raise BrokenModel(f"{path} cannot be read as a GGUF file: {error}") from error


class _Reader:
    """A cursor over the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def pairs(self) -> dict[str, Any]:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        self.at = 4
        version = self.number("<I")
        if version not in (2, 3):
            raise ValueError(f"format version {version}, where 2 and 3 are read")
        self.number("<Q")  # how many tensors
        return {self.text(): self.value(self.number("<I")) for _ in range(self.number("<Q"))}

    def number(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def text(self) -> str:
        length = self.number("<Q")
        end = self.at + length
        if end > len(self.data):
            raise ValueError("it is cut short")
        # A vocabulary may hold pieces that are no UTF-8; as ids they still count, so they must not fail the whole file.
        value = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end
        return value

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(self.layout(kind))
        item, count = self.number("<I"), self.number("<Q")
        if count > len(self.data):
            raise ValueError("it is cut short")
        if item in (_STRING, _ARRAY):
            return [self.value(item) for _ in range(count)]
        layout = f"<{count}{self.layout(item)[1]}"
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return list(values)

    @staticmethod
    def layout(kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return _SCALARS[kind]
