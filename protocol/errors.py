"""Errors as they travel (`{"error": {"message", "type", "param", "code"}}`) and as they are raised.

One exception type per way to fail; each knows its HTTP status, so that a service raises and the edge answers. `type` and the
integer `code` follow vLLM's servers (OpenAI's own clients look at the HTTP status alone).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from protocol.base import Integer, Wire


class ErrorInfo(Wire):
    """`param` is the dotted path of the field that is wrong, e.g. `messages.2.role`."""

    message: str
    type: str
    param: str | None = None
    code: Integer | str | None = None


class ErrorResponse(Wire):
    error: ErrorInfo


class TandemError(Exception):
    """Base of every error that a service answers with. `message` is for a stranger: what is wrong, where, what to do."""

    status: int = 500
    kind: str = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(message=self.message, type=self.kind, param=self.param, code=self.status)

    @property
    def headers(self) -> Mapping[str, str]:
        return {}


class BadRequest(TandemError):
    status, kind = 400, "BadRequestError"


class Unauthorized(TandemError):
    status, kind = 401, "AuthenticationError"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class NotFound(TandemError):
    status, kind = 404, "NotFoundError"


class RequestTimeout(TandemError):
    """The client took too long to send its request."""

    status, kind = 408, "RequestTimeoutError"


class ProfileMismatch(TandemError):
    """The stream was begun with another tokenizer, template or format than this replica serves."""

    status, kind = 409, "ProfileMismatchError"


class BodyTooLarge(TandemError):
    status, kind = 413, "RequestTooLargeError"


class InternalError(TandemError):
    status, kind = 500, "InternalServerError"


class UpstreamError(TandemError):
    """A service behind this one could not be reached, or broke the protocol."""

    status, kind = 502, "UpstreamError"


class Overloaded(TandemError):
    """No room now. `retry_after` is in whole seconds."""

    status, kind = 503, "ServiceUnavailableError"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after)}


class RelayedError(TandemError):
    """An error answer of an upstream service, passed on as it came (status, message, type, param, code)."""

    def __init__(self, status: int, info: ErrorInfo, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(info.message, param=info.param)
        self.status, self._info, self._headers = status, info, dict(headers or {})

    @property
    def info(self) -> ErrorInfo:
        return self._info

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers


def field_error(field: str, reason: str) -> PydanticCustomError:
    """For a check over several fields: a validation error that is reported at `field` of the model it is raised in."""
    return PydanticCustomError("field", "{reason}", {"field": field, "reason": reason})


MAX_ERRORS = 1000
"""Errors that are looked at. Lists and mappings tell one (see `protocol.base.Wire`); but closed types tell each unknown field."""


def invalid(error: ValidationError) -> BadRequest:
    """A pydantic error as a 400 that names the first wrong field and lists at most four more.

    Union branches report one error each: reasons at one path are joined, and the deepest path is the branch that was most
    likely meant.
    """
    if error.error_count() > MAX_ERRORS:
        return BadRequest(f"the body has {error.error_count()} errors, so many that none is listed: most must be unknown fields")
    reasons: dict[str, list[str]] = {}
    for problem in error.errors(include_url=False, include_input=False):
        *path, last = problem["loc"] or ("",)
        unknown = problem["type"] == "extra_forbidden"
        named = str(last) if unknown else _field(problem)
        where = ".".join(filter(None, [_path(path if unknown else (*path, last)), named]))
        reasons.setdefault(where, []).append(problem["msg"].removeprefix("Value error, "))
    first = max(reasons, key=lambda where: where.count("."))
    listed = [first, *(where for where in reasons if where != first)][:5]
    parts = [" or ".join(dict.fromkeys(reasons[where])) for where in listed]
    message = "; ".join(f"{where}: {why}" if where else why for where, why in zip(listed, parts, strict=True))
    if len(reasons) > len(listed):
        message += f"; and {len(reasons) - len(listed)} more"
    return BadRequest(message, param=first or None)


def _field(problem: ErrorDetails) -> str | None:
    field: str | None = problem.get("ctx", {}).get("field")
    return field


_TYPE_NAMES = frozenset({"str", "int", "float", "bool", "dict", "none"})


def _path(loc: Iterable[Any]) -> str:
    # Pydantic names union branches inside the path ("str", "list[int]", "TextPart", "role:user"); clients know none of them.
    def is_field(part: Any) -> bool:
        return isinstance(part, int) or (part.isidentifier() and part.islower() and part not in _TYPE_NAMES)

    return ".".join(str(part) for part in loc if is_field(part))
