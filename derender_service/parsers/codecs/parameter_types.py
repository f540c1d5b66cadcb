"""Types of parameters, from the tools' JSON schemas, and values of these types from text.

The order in which types are tried, and what each accepts, is vLLM's (`coerce_to_schema_type`), so that both read a value alike.
"""

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from derender_service.parsers.codecs.json_string import whole_characters

STRING = "s"
_LETTERS = {"null": "n", "integer": "i", "number": "f", "boolean": "b", "object": "o", "array": "a", "string": STRING}
_ALIASES = {
    "str": STRING, "text": STRING, "varchar": STRING, "char": STRING, "enum": STRING, "int": "i", "long": "i", "short": "i",
    "unsigned": "i", "float": "f", "double": "f", "bool": "b", "dict": "o", "arr": "a", "list": "a", "sequence": "a",
}  # fmt: skip
_ORDER = "nifboas"
_LONGEST_NAME, _LONGEST_REFERENCE = 32, 512
"""Characters of a type's name and of a `$ref`."""

Kind = Annotated[str, Field(pattern="^[nifboas]{1,7}$")]
"""The types that a value may have, as letters, in the order in which they are tried."""


def kinds_of(tools: Iterable[tuple[str, Mapping[str, Any] | None]]) -> dict[str, dict[str, str]]:
    """By tool, its parameters that are not plain strings, with their types as letters of `_ORDER`. `tools`: name and schema."""
    table: dict[str, dict[str, str]] = {}
    for name, schema in tools:
        properties = schema.get("properties") if schema else None
        if not isinstance(properties, Mapping):
            continue
        letters = _letters_of(properties.values(), schema or {})
        kinds = {key: "".join(letter for letter in _ORDER if letter in letters[id(value)]) for key, value in properties.items()}
        if known := {key: kind for key, kind in kinds.items() if kind not in ("", STRING)}:
            table[name] = known
    return table


def _letters_of(schemas: Iterable[Any], root: Mapping[str, Any]) -> dict[int, set[str]]:
    """The types of these schemas, and of each that they name or are put together of, by its `id`.

    Each schema is looked at once, whoever names it, so the work is linear in the text: `$ref`s that meet again, or go round in
    circles, would else stand for endless types.
    """
    found: dict[int, set[str]] = {}
    users: dict[int, list[int]] = {}
    due = list(schemas)
    while due:
        schema = due.pop()
        if id(schema) in found:
            continue
        branches, own = _branches(schema, root), _own(schema)
        found[id(schema)] = own if own or branches else {STRING}
        for branch in branches:
            users.setdefault(id(branch), []).append(id(schema))
        due += branches
    grown = list(found)
    while grown:
        place = grown.pop()
        for user in users.get(place, ()):
            if not found[place] <= found[user]:
                found[user] |= found[place]
                grown.append(user)
    return found


def _branches(schema: Any, root: Mapping[str, Any]) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    if isinstance(schema.get("$ref"), str):
        return [_resolve(schema["$ref"], root)]
    lists = (schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf"))
    return [branch for branches in lists if isinstance(branches, list) for branch in branches]


def _own(schema: Any) -> set[str]:
    """The types that a schema says by itself; where it is but a reference, none."""
    if not isinstance(schema, Mapping) or isinstance(schema.get("$ref"), str):
        return set()
    given, values = schema.get("type"), schema.get("enum")
    names = given if isinstance(given, list) else [given]
    types = {_letter(name[:_LONGEST_NAME].lower()) for name in names if isinstance(name, str)}
    return types | {_of_value(value) for value in (values if isinstance(values, list) else ())}


def _letter(name: str) -> str:
    known = _LETTERS.get(name) or _ALIASES.get(name)
    if known:
        return known
    return "i" if name.startswith(("int", "uint")) else "f" if name.startswith(("float", "double")) else STRING


def _of_value(value: Any) -> str:
    if value is None:
        return "n"
    for kind, letter in ((bool, "b"), (int, "i"), (float, "f"), (list, "a"), (dict, "o")):
        if isinstance(value, kind):
            return letter
    return STRING


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """A schema named by a pointer within the tool's own; None where there is none."""
    if not reference.startswith("#/") or len(reference) > _LONGEST_REFERENCE:
        return None
    place: Any = root
    for step in reference[2:].split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return place


_LONGEST_LITERAL = 400
"""Characters of a word or a number, and of the white space before an object."""
_WORDS = {"n": ("null",), "b": ("true", "false", "1", "0")}
_NUMBER = re.compile(r"\s*[+-]?[\d_]*\.?\d*(?:[eE][+-]?\d*)?\s*")


def may_become(text: str, kinds: str) -> bool:
    """Whether a value that begins so may still turn out to be something else than a string."""
    text = text[:_LONGEST_LITERAL]
    bare = text.strip().lower()
    if not bare:
        return len(text) < _LONGEST_LITERAL
    if any(word.startswith(bare) for kind in kinds for word in _WORDS.get(kind, ())):
        return True
    if ("i" in kinds or "f" in kinds) and len(text) < _LONGEST_LITERAL and _NUMBER.fullmatch(text):
        return True
    return (
        ("o" in kinds and bare[0] == "{")
        or ("a" in kinds and bare[0] == "[")
        or ("o" in kinds and "a" in kinds and bare[0] in "{[")
    )


def typed(text: str, kinds: str) -> str:
    """The value as JSON: of the first type that it can be, else of what JSON it spells, else a string."""
    for kind in kinds:
        value = _READERS[kind](text)
        if value is not None:
            return value
    if "n" in kinds and text.strip() == "None":
        return "null"  # what templates that write values with `| string` show to their models
    return _json(text) or _string(text)


def _null(text: str) -> str | None:
    return "null" if text.lower() == "null" else None


def _integer(text: str) -> str | None:
    try:
        return str(int(text)) if len(text) < _LONGEST_LITERAL else None
    except ValueError:
        return None


def _number(text: str) -> str | None:
    whole = _integer(text)
    if whole is not None:
        return whole
    try:
        value = float(text) if len(text) < _LONGEST_LITERAL else math.nan
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def _boolean(text: str) -> str | None:
    return {"true": "true", "1": "true", "false": "false", "0": "false"}.get(text.strip().lower())


def _json(text: str) -> str | None:
    try:
        return dumped(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _structure(text: str) -> str | None:
    """JSON; or a Python literal, which templates that write values with `| string` show to their models."""
    found = _json(text)
    if found is not None:
        return found
    try:
        value = ast.literal_eval(text.strip())
        return dumped(value) if isinstance(value, dict | list | tuple) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def dumped(value: Any) -> str:
    """JSON text as Python writes it, in UTF-8 characters. Raises `ValueError` for what JSON has no number for."""
    return whole_characters(json.dumps(value, ensure_ascii=False, allow_nan=False))


_READERS = {"n": _null, "i": _integer, "f": _number, "b": _boolean, "o": _structure, "a": _structure, STRING: _string}
