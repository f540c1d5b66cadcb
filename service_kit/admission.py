"""What every request and every WebSocket must pass before a route sees it."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import BodyTooLarge, Unauthorized
from service_kit.lifecycle import Lifecycle, shutting_down

OPEN_PATHS = frozenset({"/health", "/metrics"})


@dataclass(frozen=True)
class Admission:
    """`bearer` is the value that the Authorization header must have; None lets everyone in."""

    lifecycle: Lifecycle
    bearer: bytes | None
    max_body_bytes: int

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises `Overloaded` while the server drains, `Unauthorized`, or `BodyTooLarge` where the headers tell."""
        if path in OPEN_PATHS:
            return
        if self.lifecycle.draining:
            raise shutting_down()
        if self.bearer and not hmac.compare_digest(headers.get(b"authorization", b""), self.bearer):
            raise Unauthorized("missing or wrong API key; send it as 'Authorization: Bearer <key>'")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.max_body_bytes:
            raise self.too_large()

    def too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the request body is larger than this server's limit of {self.max_body_bytes} bytes")
