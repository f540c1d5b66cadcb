"""What an output must look like: one constraint, in vLLM's `structured_outputs`, of the three ways in which a request may ask.

A call that is demanded (`tool_choice`) is a constraint too: for any function a JSON list of `{"name", "parameters"}`, for a named
one its arguments alone. That is how derender reads such an output.
"""

import json
from collections.abc import Sequence
from typing import Any

from protocol.errors import BadRequest
from protocol.requests import GenerationRequest
from protocol.tools import NamedToolChoice, ToolChoice

JsonObject = dict[str, Any]

_KINDS: dict[str, tuple[type, ...]] = {
    "json": (dict, str),
    "json_object": (bool,),
    "regex": (str,),
    "choice": (list,),
    "grammar": (str,),
    "structural_tag": (str,),
}
_OPTIONS: dict[str, type] = {
    "disable_any_whitespace": bool,
    "disable_additional_properties": bool,
    "whitespace_pattern": str,
}
_ANYTHING: JsonObject = {"type": "object", "properties": {}}


def constraint(
    request: GenerationRequest, tools: Sequence[JsonObject], tool_choice: ToolChoice | None, *, one_call: bool = False
) -> JsonObject | None:
    """The worker's `structured_outputs`; None where any output will do. `tools` are OpenAI's. Raises `BadRequest`."""
    by_format = _of_format(request.response_format) if request.response_format is not None else None
    given = _checked(request.structured_outputs) if request.structured_outputs else None
    if isinstance(tool_choice, NamedToolChoice) or tool_choice == "required":
        for name, other in (("structured_outputs", given), ("response_format", by_format)):
            if other is not None:
                raise BadRequest(f"{name}: not with a tool_choice that demands a call", param=name)
        return {"json": _call(tools, tool_choice, one_call=one_call)}
    if given is not None and by_format is not None:
        raise BadRequest("structured_outputs: not with a response_format, which asks for another", param="structured_outputs")
    return given or by_format


def _of_format(wanted: JsonObject) -> JsonObject | None:
    kind = wanted.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"json_object": True}
    if kind == "json_schema":
        described = wanted.get("json_schema")
        schema = described.get("schema") if isinstance(described, dict) else None
        if not isinstance(schema, dict):
            raise BadRequest("response_format: json_schema.schema must be a JSON schema", param="response_format")
        return {"json": schema}
    if kind == "structural_tag":
        return {"structural_tag": json.dumps(wanted, ensure_ascii=False)}
    raise BadRequest(
        f"response_format: type must be text, json_object, json_schema or structural_tag, not {str(kind)[:60]!r}",
        param="response_format",
    )


def _checked(given: JsonObject) -> JsonObject:
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        wanted = _KINDS.get(name) or (_OPTIONS.get(name, type(None)),)
        if name not in _KINDS and name not in _OPTIONS:
            raise BadRequest(f"structured_outputs: {name[:60]!r} is not known", param="structured_outputs")
        if not isinstance(value, wanted):
            shapes = " or ".join(each.__name__ for each in wanted)
            raise BadRequest(f"structured_outputs: {name} must be {shapes}", param="structured_outputs")
    kinds = [name for name in known if name in _KINDS]
    if len(kinds) != 1:
        raise BadRequest(f"structured_outputs: give one of {', '.join(_KINDS)}", param="structured_outputs")
    choices = known.get("choice")
    if choices is not None and not (choices and all(isinstance(each, str) for each in choices)):
        raise BadRequest("structured_outputs: choice must be a list of texts", param="structured_outputs")
    return known


def _call(tools: Sequence[JsonObject], tool_choice: ToolChoice, *, one_call: bool) -> JsonObject:
    if not tools:
        raise BadRequest("tool_choice: a call is demanded, and there are no tools", param="tool_choice")
    functions = [tool["function"] for tool in tools]
    if isinstance(tool_choice, NamedToolChoice):
        wanted = tool_choice.function.name
        named = next((function for function in functions if function["name"] == wanted), None)
        if named is None:
            raise BadRequest(f"tool_choice: no tool is called {wanted!r}", param="tool_choice.function.name")
        return named.get("parameters") or _ANYTHING
    definitions: JsonObject = {}
    calls = [_one_call(index, function, definitions) for index, function in enumerate(functions)]
    schema: JsonObject = {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": calls}}
    if one_call:
        schema["maxItems"] = 1
    return {**schema, "$defs": definitions} if definitions else schema


def _one_call(index: int, function: JsonObject, definitions: JsonObject) -> JsonObject:
    parameters = dict(function.get("parameters") or _ANYTHING)
    # References are resolved from the root of a schema, so what they name must be there.
    for name, definition in (parameters.pop("$defs", None) or {}).items():
        if definitions.setdefault(name, definition) != definition:
            where = f"tools.{index}.function.parameters"
            raise BadRequest(f"{where}: another tool has a different definition of {name!r} in $defs", param=where)
    properties = {"name": {"type": "string", "enum": [function["name"]]}, "parameters": parameters}
    return {"properties": properties, "required": ["name", "parameters"]}
