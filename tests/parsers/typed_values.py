"""Random parameters of tools: a JSON schema, a value that fits it, and the text that a template makes of the value."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.parsers.values import JsonObject, floats, integers, json_texts, keys, texts, values

_TYPES = ("string", "integer", "number", "boolean", "object", "array")


@dataclass(frozen=True)
class Parameter:
    """`schema` is None for one that the tool does not declare."""

    key: str
    schema: JsonObject | None
    value: Any
    text: str


@st.composite
def parameters(draw: st.DrawFn, written: Callable[[Any], str] | None, allowed: Callable[[str], bool]) -> list[Parameter]:
    """`written` is how the template writes what is no string; None: as JSON, in any of its spellings. `allowed` strings only."""
    own = st.lists(keys, max_size=4, unique=True)
    return [draw(_parameter(key, written, allowed)) for key in draw(own)]


@st.composite
def _parameter(draw: st.DrawFn, key: str, written: Callable[[Any], str] | None, allowed: Callable[[str], bool]) -> Parameter:
    kind = draw(st.sampled_from((*_TYPES, *_TYPES[:1] * 3, "untyped", "undeclared", "enum", "string or integer", "null")))
    schema, value = draw(_typed(kind))
    if draw(st.booleans()) and kind in _TYPES:
        schema, value = draw(_nullable(schema, value))
    if value is None and "'string'" in repr(schema):
        text = "null"  # None would be a string, as vLLM has it
    else:
        text = value if isinstance(value, str) else written(value) if written else draw(json_texts(value))
    if not allowed(text):
        schema, value, text = {"type": "string"}, "plain", "plain"
    return Parameter(key, None if kind == "undeclared" else schema, value, text)


@st.composite
def _typed(draw: st.DrawFn, kind: str) -> tuple[JsonObject, Any]:
    if kind in ("string", "untyped", "undeclared"):
        return ({"type": "string"} if kind == "string" else {}), draw(texts())
    if kind == "enum":
        return {"enum": ["red", "green"]}, draw(st.sampled_from(("red", "green")))
    if kind == "string or integer":
        words = texts().filter(lambda text: not text.strip().lstrip("+-").replace("_", "").isdigit())
        return {"type": ["string", "integer"]}, draw(st.one_of(words, integers))
    if kind == "null":
        return {"type": "null"}, None
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "integer": integers,
        "number": st.one_of(integers, floats),
        "boolean": st.booleans(),
        "object": st.dictionaries(keys, values(), max_size=3),
        "array": st.lists(values(), max_size=3),
    }
    return {"type": kind}, draw(drawn[kind])


@st.composite
def _nullable(draw: st.DrawFn, schema: JsonObject, value: Any) -> tuple[JsonObject, Any]:
    ways = ({"anyOf": [schema, {"type": "null"}]}, {"oneOf": [{"type": "null"}, schema]}, {"type": [schema["type"], "null"]})
    chosen = draw(st.sampled_from(ways))
    if draw(st.booleans()):
        return chosen, None
    is_null = isinstance(value, str) and value.lower() == "null"
    return chosen, "nil" if is_null else value


@st.composite
def schemas(draw: st.DrawFn, drawn: list[Parameter]) -> JsonObject:
    """The tool's `parameters`; some of its properties are named by reference."""
    properties, definitions = dict[str, Any](), dict[str, Any]()
    for number, parameter in enumerate(drawn):
        if parameter.schema is None:
            continue
        properties[parameter.key] = parameter.schema
        if draw(st.booleans()):
            definitions[f"T/{number}"] = parameter.schema
            properties[parameter.key] = {"$ref": f"#/$defs/T~1{number}"}
    return {"type": "object", "properties": properties, "$defs": definitions}


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_python(value: Any) -> str:
    """As templates write it that say `| string`."""
    return str(value)
