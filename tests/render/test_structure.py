"""What an output must look like: formats, structured outputs and demanded calls come to one constraint."""

from typing import Any

import pytest

from protocol.errors import BadRequest
from tests.render.rendering import render_chat, render_completion, renderer, say

JsonObject = dict[str, Any]


def tool(name: str, **parameters: Any) -> JsonObject:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}


def structure(**request: Any) -> JsonObject | None:
    found: JsonObject | None = render_chat(renderer("smollm2"), **say("x", **request))["sampling_params"].get("structured_outputs")
    return found


SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"json_object": True}),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}, {"json": SCHEMA}),
        ({"type": "structural_tag", "format": {"é": 1}}, {"structural_tag": '{"type": "structural_tag", "format": {"é": 1}}'}),
    ],
)
def test_formats(wanted: JsonObject, expected: JsonObject | None) -> None:
    assert structure(response_format=wanted) == expected
    answer = render_completion(renderer("tiny"), prompt="x", response_format=wanted)[0]["sampling_params"]
    assert answer.get("structured_outputs") == expected


@pytest.mark.parametrize(
    "given",
    [
        {"json": SCHEMA},
        {"json": "{}"},
        {"json_object": True},
        {"regex": "a+"},
        {"choice": ["a", "b"]},
        {"grammar": "root ::= x", "disable_any_whitespace": True},
        {"structural_tag": "{}"},
    ],
)
def test_structured_outputs_are_passed_on(given: JsonObject) -> None:
    assert structure(structured_outputs={**given, "whitespace_pattern": None}) == given


def test_any_call() -> None:
    one = tool("f", properties={"x": {"$ref": "#/$defs/X"}}, **{"$defs": {"X": {"type": "integer"}}})
    other = {"type": "function", "function": {"name": "g"}}
    found = structure(tools=[one, other], tool_choice="required")
    assert found is not None
    schema = found["json"]
    assert (schema["type"], schema["minItems"], schema["$defs"]) == ("array", 1, {"X": {"type": "integer"}})
    calls = schema["items"]["anyOf"]
    assert [call["properties"]["name"]["enum"] for call in calls] == [["f"], ["g"]]
    assert calls[0]["properties"]["parameters"] == {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}
    assert calls[1]["properties"]["parameters"] == {"type": "object", "properties": {}}
    assert "maxItems" not in schema
    single = structure(tools=[one], tool_choice="required", parallel_tool_calls=False)
    assert single is not None
    assert single["json"]["maxItems"] == 1


def test_a_named_call_is_its_arguments() -> None:
    asked = {"type": "function", "function": {"name": "g"}}
    assert structure(tools=[tool("f"), tool("g", properties={"x": {}})], tool_choice=asked) == {
        "json": {"type": "object", "properties": {"x": {}}}
    }
    assert structure(tools=[tool("f")], tool_choice="auto", response_format={"type": "json_object"}) == {"json_object": True}
    assert structure(tools=[tool("f")], tool_choice="required", response_format={"type": "text"}) != {"json_object": True}


NAMED = {"type": "function", "function": {"name": "f"}}
DIFFERENT = [tool(name, **{"$defs": {"X": {"type": kind}}}) for name, kind in (("f", "integer"), ("g", "string"))]


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"json": 1}}, "structured_outputs"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs"),
        ({"structured_outputs": {"_backend": "x", "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "tools": [tool("f")], "tool_choice": "required"}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}, "tools": [tool("f")], "tool_choice": "required"}, "response_format"),
        ({"response_format": {"type": "json_object"}, "tools": [tool("f")], "tool_choice": NAMED}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": DIFFERENT}, "tools.1.function.parameters"),
        ({"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice.function.name"),
    ],
)
def test_refused_by_name(request_: JsonObject, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        structure(**request_)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"tools": [tool("f")], "tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_harmony_has_a_form_of_its_own(request_: JsonObject, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render_chat(renderer("gptoss"), **say("x", **request_))
    assert caught.value.param == param
