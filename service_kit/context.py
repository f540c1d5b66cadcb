"""Which request this code runs for: read by log lines and by calls to the next service."""

import re
import uuid
from collections.abc import Mapping
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")
traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)

REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def new_request_id() -> str:
    return uuid.uuid4().hex


def adopt(headers: Mapping[bytes, bytes]) -> str:
    """Makes this code run for the request with these headers (names in lower case). Returns its id: its own, or a new one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    adopted = given if REQUEST_ID.fullmatch(given) else new_request_id()
    request_id.set(adopted)
    trace = headers.get(b"traceparent", b"").decode("latin-1")
    traceparent.set(trace if TRACEPARENT.fullmatch(trace) else None)
    return adopted


def onward_headers() -> dict[str, str]:
    """Headers that carry this request's identity to the next service (W3C trace context, `X-Request-Id`)."""
    headers = {"X-Request-Id": request_id.get()}
    if trace := traceparent.get():
        headers["traceparent"] = trace
    return headers
