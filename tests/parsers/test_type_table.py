"""The packed table of parameter types comes back as it was, and nothing else unpacks."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derender_service.parsers.type_table import BrokenTable, pack, unpack

kinds = st.text("nifboas", min_size=1, max_size=7)
tables = st.dictionaries(st.text(min_size=1), st.dictionaries(st.text(min_size=1), kinds, min_size=1), max_size=8)


@given(tables)
def test_a_table_comes_back(table: dict[str, dict[str, str]]) -> None:
    assert unpack(pack(table)) == table


def test_a_table_of_little_variety_comes_back_too() -> None:
    table = {"f" * n: {"key": "i"} for n in range(1, 200)}
    assert unpack(pack(table)) == table


@given(st.text("0123abc!#", max_size=40) | st.binary(max_size=60).map(lambda data: base64.b85encode(zlib.compress(data)).decode()))
def test_anything_else_is_refused(packed: str) -> None:
    if packed:
        with pytest.raises(BrokenTable):
            unpack(packed)


def test_little_cannot_unpack_to_much() -> None:
    bomb = base64.b85encode(zlib.compress(b'{"f":{"' + b"x" * 3_000_000 + b'":"i"}}', 9)).decode()
    assert len(bomb) < 5000
    with pytest.raises(BrokenTable, match="too much"):
        unpack(bomb)
