"""Random texts and JSON values, and random ways to write them down."""

import json
from functools import cache
from typing import Any
from unicodedata import normalize

from hypothesis import strategies as st

from derender_service.parsers.families import REASONING, TOOLS

JsonObject = dict[str, Any]


@cache
def every_marker() -> tuple[str, ...]:
    """The markers of all families: what is markup to one is a look-alike to another."""
    found: dict[str, None] = {}
    for tools in TOOLS.values():
        steps = (*tools.entry, *tools.loose, *tools.bare, *(step for region in tools.regions for step in region.steps))
        found |= {step.marker.text: None for step in steps}
    for reasoning in REASONING.values():
        found |= {marker.text: None for marker in (*reasoning.starts, *reasoning.ends, *(reasoning.wrap or ()))}
    return tuple(sorted(found))


PROSE = (
    "Let me see", " ", "\n", "\n\n", "a < b && c > d", "<", "</", "<|", "[", "]", "{", "}", '"', "'", "\\", "`", ":", ",", ";", "=",
    "日本語", "naïve ☔️", "👩‍🚀", "e\u0301", "\t", "\r\n", "1e5", "None", "[1] Smith", '{"x": 1}', "f(x=1)", "\ufffd", "\u2028",
)  # fmt: skip


@cache
def pieces() -> st.SearchStrategy[str]:
    markers = st.sampled_from(every_marker())
    cut_markers = st.builds(lambda marker, at: marker[: at % len(marker)], markers, st.integers(0, 40))
    # SmolLM2's tokenizer has no tokens for these, nor for some of what comes later.
    characters = st.characters(max_codepoint=0x2FFF, exclude_characters="\x04\x06\x13\x14\x16\x1d")
    return st.one_of(st.sampled_from(PROSE), cut_markers, markers, st.text(characters, max_size=6))


@cache
def texts() -> st.SearchStrategy[str]:
    """Prose and look-alikes. Composed characters only: Qwen's tokenizer makes them of decomposed ones."""
    return st.lists(pieces(), max_size=6).map(lambda parts: normalize("NFC", "".join(parts)))


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}", fullmatch=True).filter(lambda name: name not in ("True", "False", "None"))
keys = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.sampled_from(("naïve", "名前", "x.y", "a-b", "name", "arguments"))
)
integers = st.one_of(st.integers(-99, 99), st.integers(-(2**80), 2**80))
floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer())
scalars = st.one_of(st.none(), st.booleans(), integers, floats)


@cache
def values() -> st.SearchStrategy[Any]:
    """Any JSON, nested."""
    leaves = st.one_of(scalars, texts())
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.one_of(keys, texts()), inner, max_size=3), inner.map(lambda v: [[[v]]])
        ),
        max_leaves=6,
    )


@cache
def objects() -> st.SearchStrategy[JsonObject]:
    return st.dictionaries(st.one_of(keys, texts()), values(), max_size=4)


_SPACES = ("", " ", "\n", "\n  ")
_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@st.composite
def json_texts(draw: st.DrawFn, value: Any) -> str:
    """One of the many JSON texts of a value."""
    style = draw(st.sampled_from(("plain", "compact", "ascii", "odd")))
    if style == "plain":
        return json.dumps(value, ensure_ascii=False)
    if style == "compact":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if style == "ascii":
        return json.dumps(value)
    return _odd(value, draw(st.randoms(use_true_random=False)))


def _odd(value: Any, random: Any) -> str:
    """White space and escapes wherever JSON allows them."""
    space = lambda: random.choice(_SPACES)  # noqa: E731
    if isinstance(value, dict):
        pairs = (f"{space()}{_odd(key, random)}{space()}:{space()}{_odd(item, random)}{space()}" for key, item in value.items())
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(space() + _odd(item, random) + space() for item in value) or space()) + "]"
    if isinstance(value, str):
        return '"' + "".join(_escaped(character, random) for character in value) + '"'
    return json.dumps(value)


def _escaped(character: str, random: Any) -> str:
    if character in _SHORT and (character in '"\\' or random.random() < 0.5):
        return _SHORT[character]
    if ord(character) < 0x20 or random.random() < 0.2:
        return json.dumps(character)[1:-1] if ord(character) > 0x7E else f"\\u{ord(character):04{random.choice('xX')}}"
    return character
