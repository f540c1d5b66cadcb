"""The edge for WebSockets: the handshake passes what a request passes, and each message is bounded as a body is."""

import logging
import time

from protocol.errors import ErrorResponse, InternalError, NotFound, Overloaded, TandemError
from service_kit import context
from service_kit.admission import Admission
from service_kit.asgi import App, Message, Receive, Scope, Send
from service_kit.metrics import Metrics

log = logging.getLogger("tandem.http")

GOING_AWAY = 1001
TOO_BIG = 1009
BUG = 1011
POLICY = 1008
"""Codes of a closing frame (RFC 6455, 7.4.1)."""


class Connection:
    """One WebSocket on its way through the edge. Its handshake is answered with 101, or refused as a request would be."""

    def __init__(self, app: App, metrics: Metrics, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        self.app, self.metrics, self.admission = app, metrics, admission
        self.scope, self._receive, self._send = scope, receive, send
        self.status = 0
        self.closed = False

    async def run(self) -> None:
        headers: dict[bytes, bytes] = dict(self.scope["headers"])
        self.request_id = context.adopt(headers)
        started = time.perf_counter()
        try:
            self.admission.check(self.scope["path"], headers)
            with self.admission.lifecycle.unanswered():
                await self.app(self.scope, self.receive, self.send)
        except TandemError as error:
            await self._refuse(error)
        except Exception:  # the last line of defence, as for requests
            log.exception("unhandled error")
            await self._refuse(InternalError("internal error; the service's log has the details under this request id"))
        finally:
            if self.status == 101:
                self.metrics.websockets.dec()
            extra = {"status": self.status or 499, "ms": round((time.perf_counter() - started) * 1000, 1)}
            log.info("WEBSOCKET %s", self.scope["path"], extra=extra)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "websocket.receive" and self._is_too_large(message.get("bytes"), message.get("text")):
            reason = f"a message may have {self.admission.max_body_bytes} bytes"
            self.closed = True
            await self._send({"type": "websocket.close", "code": TOO_BIG, "reason": reason})
            return {"type": "websocket.disconnect", "code": TOO_BIG, "reason": reason}
        return message

    def _is_too_large(self, data: bytes | None, text: str | None) -> bool:
        limit = self.admission.max_body_bytes
        if text is None:
            return len(data or b"") > limit
        # A character has one to four bytes: most texts need not be encoded to be measured.
        return len(text) > limit or (len(text) > limit // 4 and len(text.encode()) > limit)

    async def send(self, message: Message) -> None:
        if self.closed:
            raise ConnectionError("this connection was closed for a message that was too large")
        if self.status == 0:
            kind = message["type"]
            if kind == "websocket.close":  # the router's answer where no route takes WebSockets
                await self._refuse(NotFound(f"Not Found: WEBSOCKET {self.scope['path']}"))
                return
            self.status = 101 if kind == "websocket.accept" else message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self.request_id.encode())]
            self.metrics.requests.labels(getattr(self.scope.get("route"), "path", "unknown"), str(self.status)).inc()
            if self.status == 101:
                self.metrics.websockets.inc()
        await self._send(message)

    async def _refuse(self, error: TandemError) -> None:
        """The handshake's answer, where it has none yet; else the end of the connection. A client that is gone is told nothing."""
        try:
            if self.status:
                code, reason = (GOING_AWAY, error.message) if isinstance(error, Overloaded) else (BUG, "internal error")
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
            elif "websocket.http.response" in (self.scope.get("extensions") or {}):
                body = ErrorResponse(error=error.info).wire()
                headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
                headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
                await self.send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
                await self.send({"type": "websocket.http.response.body", "body": body})
            else:
                await self._send({"type": "websocket.close", "code": POLICY, "reason": error.kind})
        except OSError:
            log.debug("the client left before its WebSocket was refused")
