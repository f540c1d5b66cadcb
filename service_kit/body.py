"""JSON bodies: read as bytes, validated straight into wire types, and described in the OpenAPI document."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import from_json

from protocol.base import Wire
from protocol.errors import BadRequest, ErrorResponse, invalid
from service_kit.collector import BIG, uncollected

T = TypeVar("T", bound=Wire)

_REF = "#/components/schemas/{model}"


def parse(model: type[T], body: str | bytes) -> T:
    """The body as `model`. Raises `BadRequest` that names the wrong field. CPU-bound: see `offload`."""
    _check_numbers(body)
    try:
        if len(body) < BIG:
            return model.model_validate_json(body)
        check_values(body)
        with uncollected():
            return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from error


def parse_as(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """Like `parse`, for a union of types."""
    _check_numbers(body)
    try:
        if len(body) < BIG:
            return adapter.validate_json(body)
        check_values(body)
        with uncollected():
            return adapter.validate_json(body)
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


MAX_VALUES = 4_000_000
"""Of one body, told by its commas and opening brackets: thirty for each token of a context of 131,072. No other thread runs while
they are read, which takes a second; a body of the largest size has room for ten times as many."""


def check_values(body: str | bytes) -> None:
    """Refuses a body of too many tiny values. Raises `BadRequest`."""
    marks = [body.count(mark) for mark in ",[{"] if isinstance(body, str) else [body.count(mark) for mark in (b",", b"[", b"{")]
    if sum(marks) > MAX_VALUES:
        raise BadRequest(f"the body has more than {MAX_VALUES} values (its commas and brackets are counted): send fewer at once")


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
