"""JSON bodies: read as bytes, validated straight into wire types, and described in the OpenAPI document."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import from_json

from protocol.base import Wire
from protocol.errors import BadRequest, ErrorResponse, invalid
from service_kit.offload import BIG, long_step

R = TypeVar("R")
T = TypeVar("T", bound=Wire)

_REF = "#/components/schemas/{model}"


@dataclass(frozen=True)
class Most:
    """How much one body may hold beside its bytes: no other thread runs while it is read. `values` are objects, lists, texts and
    the like; `numbers` are read ten times as fast."""

    values: int
    numbers: int


WORDS = Most(values=2**19, numbers=2**22)
"""Of what a client asks: four values for each token of a context of 131,072, and of a message there are three. Read within some
0.2 seconds."""
TOKENS = Most(values=2**22, numbers=2**23)
"""Of what services make of it, and hand on to one another: the prompt's ids beside all that the client sent, an output with its
logprobs. Whatever `WORDS` let pass (and `MAX_CONTEXT`) is not refused later."""


def parse(model: type[T], body: str | bytes, most: Most = TOKENS) -> T:
    """The body as `model`. Raises `BadRequest` that names the wrong field. CPU-bound: see `offload`."""
    return _read(model.model_validate_json, body, most)


def parse_as(adapter: TypeAdapter[Any], body: bytes, most: Most = TOKENS) -> Any:
    """Like `parse`, for a union of types."""
    return _read(adapter.validate_json, body, most)


def _read(validate: Callable[[str | bytes], R], body: str | bytes, most: Most) -> R:
    _check_numbers(body)
    try:
        if len(body) < BIG:
            return validate(body)
        check_values(body, most)
        with long_step():
            return validate(body)
    except ValidationError as error:
        raise invalid(error) from error


def _check_numbers(body: str | bytes) -> None:
    """Refuses `NaN` and `Infinity`, which no JSON has, and which readers further on would stumble over. Raises `BadRequest`."""
    # Mostly they are words of a text, so that they are there is no more than a reason to look.
    there = any(name in body for name in ("NaN", "Infinity")) if isinstance(body, str) else b"NaN" in body or b"Infinity" in body
    if there:
        try:
            from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise BadRequest(f"the body is no JSON: {error}") from error


_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)'
_STRINGS = re.compile(_STRING, re.DOTALL)
_PART = re.compile(rb'(?:[^"]{1,16384}+|' + _STRING + rb"){1,64}+", re.DOTALL)
"""So much that the event loop need not wait for it, unless one text is very long."""
_NUMBERS = re.compile(rb",[-0-9]")


def check_values(body: str | bytes, most: Most) -> None:
    """Refuses a body of too many tiny values. They are told by commas and opening brackets. Raises `BadRequest`."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    if _marks(raw) <= min(most.values, most.numbers):
        return
    # Mostly they are those of a text.
    values = numbers = at = 0
    while part := _PART.match(raw, at):
        at = part.end()
        bare = _STRINGS.sub(b"", part.group()).translate(None, b" \t\r\n")
        found = len(_NUMBERS.findall(bare))
        values, numbers = values + _marks(bare) - found, numbers + found
        for name, count, limit in (("objects, lists and texts", values, most.values), ("numbers", numbers, most.numbers)):
            if count > limit:
                raise BadRequest(f"the body has more than {limit} {name}: send fewer at once")


def _marks(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def json_response(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def documented(
    *requests: type[Wire],
    answers: tuple[type[Wire], ...] = (),
    as_list: bool = False,
    list_asked: bool = False,
    stream: str | None = None,
    errors: tuple[int, ...] = (400, 404, 413),
) -> dict[str, Any]:
    """Keyword arguments for a route decorator: what it reads and answers, for the OpenAPI document.

    Bodies are parsed by hand (off the event loop), so FastAPI cannot see their types by itself. `as_list` says that the answer is a
    list, `list_asked` that the body is one; `stream` describes what is sent as `text/event-stream` when the request asks to stream.
    """
    extra: dict[str, Any] = {}
    if requests:
        asked = _one_of(requests, "validation")
        asked = {"type": "array", "items": asked} if list_asked else asked
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": asked}}}
    schema = _one_of(answers, "serialization") if answers else {}
    content: dict[str, Any] = {"application/json": {"schema": {"type": "array", "items": schema} if as_list else schema}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string", "description": stream}}
    responses: dict[str, Any] = {"200": {"description": "Success", "content": content}}
    error = {"application/json": {"schema": _one_of((ErrorResponse,), "serialization")}}
    responses |= {str(status): {"description": "Error", "content": error} for status in sorted({*errors, *_EVERYWHERE})}
    extra["responses"] = responses
    return {"openapi_extra": extra, "response_class": Response}


_EVERYWHERE = (401, 503)
"""What the edge answers on any route: a wrong API key, and a server that is shutting down."""

_documented: dict[str, tuple[type[Wire], JsonSchemaMode]] = {}
"""Wire types by the placeholder that stands for their reference until the whole document is known."""


def _one_of(models: tuple[type[Wire], ...], mode: JsonSchemaMode) -> dict[str, Any]:
    refs = []
    for model in models:
        placeholder = f"wire:{mode}:{model.__module__}.{model.__name__}"
        _documented[placeholder] = (model, mode)
        refs.append({"$ref": placeholder})
    return refs[0] if len(refs) == 1 else {"oneOf": refs}


def install_openapi(app: FastAPI) -> None:
    """Makes the app's document list the wire types that its routes were `documented` with."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            used: dict[str, None] = {}
            for path in document["paths"].values():
                for operation in path.values():
                    operation.get("responses", {}).pop("422", None)
            _walk(document["paths"], lambda ref: used.setdefault(ref) or ref)
            wanted = [_documented[ref] for ref in used if ref in _documented]
            schemas, definitions = models_json_schema(wanted, ref_template=_REF)
            _walk(document["paths"], lambda ref: schemas[_documented[ref]]["$ref"] if ref in _documented else ref)
            document.setdefault("components", {}).setdefault("schemas", {}).update(definitions.get("$defs", {}))
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _walk(node: Any, replace: Callable[[str], str]) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            node["$ref"] = replace(node["$ref"])
        for value in node.values():
            _walk(value, replace)
    elif isinstance(node, list):
        for value in node:
            _walk(value, replace)
