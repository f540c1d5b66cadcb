"""HTTP calls to the services behind the gateway."""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import TracebackType

import httpx
from pydantic import ValidationError

from gateway.metrics import GatewayMetrics
from gateway.replicas import Replica, Replicas
from protocol.errors import ErrorInfo, ErrorResponse, RelayedError, TandemError, UpstreamError
from service_kit.context import onward_headers

log = logging.getLogger("tandem.gateway")

_MESSAGE_BYTES = 300


class Unreachable(UpstreamError):
    """The service could not be reached, or its connection broke. Another replica may do better."""


@dataclass(frozen=True)
class Upstream:
    """The replicas of one kind of service: `render`, `worker` or `derender`."""

    kind: str
    client: httpx.AsyncClient
    replicas: Replicas
    metrics: GatewayMetrics

    async def post(self, path: str, body: bytes) -> bytes:
        """The answer's body. Only for calls that may be repeated: a replica that breaks off is passed over for the next.

        Raises `RelayedError` with the service's own answer when that is an error, `Unreachable` when no replica answered.
        """
        async with await self._open("POST", path, body, read=True) as live:
            return live.response.content

    async def get(self, path: str) -> bytes:
        """Like `post`."""
        async with await self._open("GET", path, None, read=True) as live:
            return live.response.content

    async def stream(self, path: str, body: bytes) -> "Live":
        """The answer, opened but not read; raises as `post` does. To be used in `async with`: leaving it closes the connection,
        which tells the service to stop."""
        return await self._open("POST", path, body, read=False)

    async def healthy(self, replica: Replica) -> bool:
        """Whether the replica says that it can answer."""
        try:
            return (await self.client.get(f"{replica.url}/health", timeout=2.0)).is_success
        except httpx.RequestError:
            return False

    async def _open(self, method: str, path: str, body: bytes | None, *, read: bool) -> "Live":
        problem: TandemError = Unreachable(f"no {self.kind} service is configured")
        replicas = await self.replicas.ordered()
        # The only replica is tried twice: the connection that was kept open to it may have died with its last incarnation.
        for replica in replicas * 2 if len(replicas) == 1 and read else replicas:
            live = await self._try(replica, method, path, body, read=read)
            if isinstance(live, Unreachable):
                problem = live
            elif live.response.status_code == 503:  # no room there: perhaps at the next
                problem = await live.refusal()
            elif live.response.is_error:
                raise await live.refusal()
            else:
                return live
        raise problem

    async def _try(self, replica: Replica, method: str, path: str, body: bytes | None, *, read: bool) -> "Live | Unreachable":
        headers = onward_headers() | ({"Content-Type": "application/json"} if body is not None else {})
        request = self.client.build_request(method, f"{replica.url}{path}", content=body, headers=headers)
        replica.running += 1
        try:
            response = await self.client.send(request, stream=not read)
        except httpx.RequestError as error:
            replica.running -= 1
            return self.broken(replica, error)
        except BaseException:  # cancelled: the count must not keep a call that no longer runs
            replica.running -= 1
            raise
        return Live(self, replica, response)

    def broken(self, replica: Replica, error: httpx.RequestError) -> Unreachable:
        replica.rest()
        self.metrics.upstream_failures.labels(self.kind).inc()
        reason = str(error) or type(error).__name__
        log.warning("the %s service at %s cannot be reached: %s", self.kind, replica.url, reason)
        return Unreachable(f"the {self.kind} service cannot be reached: {reason}")


@dataclass
class Live:
    """An answer whose connection is open."""

    upstream: Upstream
    replica: Replica
    response: httpx.Response
    _open: bool = field(default=True, repr=False)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises `Unreachable` when the connection breaks."""
        try:
            async for chunk in self.response.aiter_raw():
                yield chunk
        except httpx.RequestError as error:
            raise self.upstream.broken(self.replica, error) from error

    async def refusal(self) -> TandemError:
        """The service's error answer, to be passed on. Closes the connection."""
        async with self:
            try:
                body = await self.response.aread()
            except httpx.RequestError as error:
                return self.upstream.broken(self.replica, error)
        return relayed(self.upstream.kind, self.response, body)

    async def __aenter__(self) -> "Live":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._open:
            self._open = False
            self.replica.running -= 1
            await self.response.aclose()


def relayed(kind: str, response: httpx.Response, body: bytes) -> RelayedError:
    """An error answer as an exception; one that is not in the wire's form is quoted."""
    try:
        info = ErrorResponse.model_validate_json(body).error
    except ValidationError:
        quoted = body[:_MESSAGE_BYTES].decode("utf-8", "replace")
        info = ErrorInfo(message=f"the {kind} service answered {response.status_code}: {quoted}", type="UpstreamError")
    headers = {"Retry-After": after} if (after := response.headers.get("retry-after")) else {}
    return RelayedError(response.status_code, info, headers)
