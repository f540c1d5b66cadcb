"""The outermost ASGI layer of every service: request id, API key, body limit, drain, metrics and the access line."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from protocol.errors import BodyTooLarge, ErrorResponse, InternalError, Overloaded, RequestTimeout, TandemError, Unauthorized
from service_kit import context
from service_kit.lifecycle import Lifecycle
from service_kit.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("tandem.http")
BODY_SECONDS = 60.0
"""Silence within a request's body after which it is given up: half a request must not hold a server."""

OPEN_PATHS = frozenset({"/health", "/metrics"})


class Edge:
    """Wraps a service's app. Answers for itself what needs no route: 401, 413, 503 while draining, and the 500 of a bug."""

    def __init__(self, app: App, *, metrics: Metrics, lifecycle: Lifecycle, api_key: str | None, max_body_bytes: int) -> None:
        self.app, self.metrics, self.lifecycle = app, metrics, lifecycle
        self.bearer = f"Bearer {api_key}".encode() if api_key else None
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request on its way through the edge."""

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        self.edge, self.scope, self._receive, self._send = edge, scope, receive, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status = 0
        self.received = 0
        self.complete = False

    async def run(self) -> None:
        self._adopt_identity()
        metrics = self.edge.metrics
        started = time.perf_counter()
        metrics.in_flight.inc()
        try:
            self._admit()
            await self.edge.app(self.scope, self.receive, self.send)
        except TandemError as error:
            await self._answer(error)
        except Exception:  # the last line of defence: a bug is a 500 with an id, and a traceback in the log
            log.exception("unhandled error")
            await self._answer(InternalError("internal error; the service's log has the details under this request id"))
        finally:
            metrics.in_flight.dec()
            seconds = time.perf_counter() - started
            route = getattr(self.scope.get("route"), "path", "unknown")
            metrics.requests.labels(route, str(self.status or 499)).inc()
            metrics.seconds.labels(route).observe(seconds)
            if self.scope["path"] not in OPEN_PATHS:
                extra = {"status": self.status or 499, "ms": round(seconds * 1000, 1)}
                log.info("%s %s", self.scope["method"], self.scope["path"], extra=extra)

    def _adopt_identity(self) -> None:
        given = self.headers.get(b"x-request-id", b"").decode("latin-1")
        self.request_id = given if context.REQUEST_ID.fullmatch(given) else context.new_request_id()
        context.request_id.set(self.request_id)
        trace = self.headers.get(b"traceparent", b"").decode("latin-1")
        context.traceparent.set(trace if context.TRACEPARENT.fullmatch(trace) else None)

    def _admit(self) -> None:
        if self.scope["path"] in OPEN_PATHS:
            return
        if self.edge.lifecycle.draining:
            raise Overloaded("this server is shutting down", retry_after=5)
        if self.edge.bearer and not hmac.compare_digest(self.headers.get(b"authorization", b""), self.edge.bearer):
            raise Unauthorized("missing or wrong API key; send it as 'Authorization: Bearer <key>'")
        length = self.headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.edge.max_body_bytes:
            raise self._too_large()

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the request body is larger than this server's limit of {self.edge.max_body_bytes} bytes")

    async def receive(self) -> Message:
        if self.complete:
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
        except TimeoutError as error:
            raise RequestTimeout(f"the request's body did not go on for {BODY_SECONDS:.0f} seconds") from error
        if message["type"] == "http.request":
            self.complete = not message.get("more_body", False)
            self.received += len(message.get("body", b""))
            if self.received > self.edge.max_body_bytes:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self.request_id.encode())]
        await self._send(message)

    async def _answer(self, error: TandemError) -> None:
        if self.status:  # the answer has begun: all that is left is to cut it
            return
        body = ErrorResponse(error=error.info).wire()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
