"""The outermost ASGI layer of every service: request id, API key, body limit, drain, metrics and the access line."""

import asyncio
import logging
import time
from collections.abc import Callable

from protocol.errors import ErrorResponse, InternalError, RequestTimeout, TandemError
from service_kit import context
from service_kit.admission import OPEN_PATHS, Admission
from service_kit.asgi import App, Message, Receive, Scope, Send
from service_kit.lifecycle import Lifecycle
from service_kit.metrics import Metrics
from service_kit.websocket_edge import Connection

log = logging.getLogger("tandem.http")
BODY_SECONDS = 60.0
"""Silence within a request's body after which it is given up: half a request must not hold a server."""


class Edge:
    """Wraps a service's app. Answers for itself what needs no route: 401, 413, 503 while draining, and the 500 of a bug."""

    def __init__(self, app: App, *, metrics: Metrics, lifecycle: Lifecycle, api_key: str | None, max_body_bytes: int) -> None:
        self.app, self.metrics = app, metrics
        self.admission = Admission(lifecycle, f"Bearer {api_key}".encode() if api_key else None, max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await Connection(self.app, self.metrics, self.admission, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)


class _Exchange:
    """One request on its way through the edge."""

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        self.edge, self.scope, self._receive, self._send = edge, scope, receive, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._begun: Callable[[], None] = lambda: None
        self.status = 0
        self.received = 0
        self.complete = False

    async def run(self) -> None:
        self.request_id = context.adopt(self.headers)
        metrics = self.edge.metrics
        started = time.perf_counter()
        metrics.in_flight.inc()
        try:
            self.edge.admission.check(self.scope["path"], self.headers)
            with self.edge.admission.lifecycle.unanswered() as self._begun:
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
            if self.received > self.edge.admission.max_body_bytes:
                raise self.edge.admission.too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begun()
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
