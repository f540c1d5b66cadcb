"""HTTP calls to one address, their failures sorted, and what arrives stamped with the time."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeVar

import httpx
from pydantic import ValidationError

from protocol.base import JsonObject, Wire
from protocol.errors import ErrorResponse
from protocol.models import ModelCard
from tandem.bench.errors import BenchError, broken, refused
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.targets.connections import Connections

T = TypeVar("T", bound=Wire)

_PROBE_SECONDS = 10.0
_QUOTED_BYTES = 120
_NOT_THERE = (404, 405, 501)
_NOT_ALLOWED = (401, 403)
_UNREADABLE = (400, 422)


@dataclass(frozen=True)
class Caller:
    """Calls to one service, named as messages name it; `flag` is where a person says its address."""

    name: str
    address: str
    connections: Connections
    clock: Stopwatch
    flag: str = "--url"

    async def stream(self, path: str, body: JsonObject) -> AsyncGenerator[tuple[float, bytes], None]:
        """Pieces of the answer's body, each with the moment it came. Raises `RequestFailed`: `http` until the answer has begun, and
        then `protocol`, since a connection that breaks has cut a stream."""
        begun = False
        try:
            async with self.connections.one() as client, client.stream("POST", f"{self.address}{path}", json=body) as response:
                if response.status_code != 200:
                    raise refused(reason(response.status_code, await response.aread()), response.status_code)
                begun = True
                async for piece in response.aiter_bytes():
                    yield self.clock(), piece
        except httpx.RequestError as error:
            if begun:
                raise broken(f"the connection broke: {said(error)}") from error
            raise refused(f"{self.address}: {said(error)}") from error

    async def post(self, path: str, body: JsonObject) -> bytes:
        """The whole answer. Raises `RequestFailed`."""
        try:
            async with self.connections.one() as client:
                response = await client.post(f"{self.address}{path}", json=body)
        except httpx.RequestError as error:
            raise refused(f"{self.address}: {said(error)}") from error
        if response.status_code != 200:
            raise refused(f"{self.name} answered {reason(response.status_code, response.content)}", response.status_code)
        return response.content

    async def models(self) -> list[ModelCard]:
        """As `/v1/models` lists them; none where it is not served or says something else. Raises `BenchError`."""
        response = await self._probe("GET", "/v1/models")
        if response.status_code in _NOT_ALLOWED:
            raise BenchError(f"{self.name} at {self.address} lets nobody in without a key: {_told(response)}; give --api-key")
        listed = read(_Listing, response.content) if response.status_code == 200 else None
        return [] if listed is None else [ModelCard(id=card.id, created=0, owned_by=card.owned_by) for card in listed.data]

    async def must_serve(self, path: str, *, strictly: bool = True) -> None:
        """Raises `BenchError` unless a body that says nothing is refused there: as one that can be read but not understood. Not
        `strictly`: with any other error, since foreign servers answer it with many a status."""
        response = await self._probe("POST", path)
        if response.status_code in _NOT_ALLOWED:
            raise BenchError(f"{self.name} at {self.address} lets nobody in without a key: {_told(response)}; give --api-key")
        right = response.status_code in _UNREADABLE if strictly else response.is_error and response.status_code not in _NOT_THERE
        if not right:
            raise BenchError(f"no {self.name} at {self.address}: POST {path} answers {_told(response)}; {self.flag} names another")

    async def _probe(self, method: str, path: str) -> httpx.Response:
        try:
            async with self.connections.one() as client:
                json: JsonObject | None = {} if method == "POST" else None
                return await client.request(method, f"{self.address}{path}", json=json, timeout=_PROBE_SECONDS)
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise BenchError(
                f"no {self.name} at {self.address}: {said(error)}; is it running? {self.flag} names another"
            ) from error


class _Card(Wire):
    id: str
    owned_by: str = ""


class _Listing(Wire):
    data: list[_Card]


def first_model(caller: Caller, cards: list[ModelCard]) -> str:
    """Raises `BenchError` where there is none."""
    if not cards:
        raise BenchError(f"{caller.name} at {caller.address} lists no model at /v1/models; name one with --model")
    return cards[0].id


def reason(status: int, body: bytes) -> str:
    """An error answer in one line: its message, where it is in the wire's form, else its beginning."""
    told = read(ErrorResponse, body)
    message = told.error.message if told else body[:_QUOTED_BYTES].decode("utf-8", "replace")
    return " ".join(f"{status}: {message}".split())


def said(error: Exception) -> str:
    return str(error) or type(error).__name__


def read(shape: type[T], body: str | bytes) -> T | None:
    try:
        return shape.model_validate_json(body)
    except ValidationError:
        return None


def _told(response: httpx.Response) -> str:
    return reason(response.status_code, response.content)
