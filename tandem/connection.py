"""HTTP as the client speaks it: one request, its stream of payloads, and errors by type."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from pydantic import ValidationError

from protocol.errors import ErrorInfo, ErrorResponse
from protocol.event_stream import StreamProtocolError
from protocol.sse import SSEDecoder, SSEError
from tandem.errors import ConnectionFailed, RequestRefused
from tandem.returning import sent

JsonObject = dict[str, Any]

TIMEOUT = httpx.Timeout(10.0, read=None, pool=None)
"""A stream may be silent for long: a prompt is computed, or waits for its turn. Who will not wait says so (`asyncio.timeout`)."""


class Connection:
    """Calls with one key over a client of one's own, or over one that is shared and stays open."""

    def __init__(self, api_key: str | None, client: httpx.AsyncClient | None) -> None:
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._shared = client

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Calls"]:
        if self._shared is not None:
            yield Calls(self._shared, self._headers)
            return
        async with httpx.AsyncClient(timeout=TIMEOUT) as client:
            yield Calls(client, self._headers)


class Calls:
    def __init__(self, client: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
        self._client, self._headers = client, headers

    async def post(self, url: str, body: JsonObject) -> JsonObject:
        """The object that is answered, or the one in a list. Raises `RequestRefused`, `ConnectionFailed`, and `StreamProtocolError`
        for another answer."""
        try:
            async with self._open(url, body) as response:
                await response.aread()
        except httpx.HTTPError as error:
            raise _failed(url, error) from error
        if response.status_code != 200:
            raise _refused(response.status_code, response.content)
        try:
            answer = json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise StreamProtocolError(f"{url} answered something that is no JSON", 0) from error
        found = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        if not isinstance(found, dict):
            raise StreamProtocolError(f"{url} answered something that is no object", 0)
        return found

    async def stream(self, url: str, body: JsonObject) -> AsyncGenerator[str, None]:
        """The payloads of a stream of events. Closing it closes the connection, which ends the work behind it. Raises as `post`."""
        decoder = SSEDecoder()
        try:
            async with self._open(url, body) as response:
                if response.status_code != 200:
                    raise _refused(response.status_code, await response.aread())
                async for data in response.aiter_bytes():
                    for event in decoder.feed(data):
                        yield event.data
        except httpx.HTTPError as error:
            raise _failed(url, error) from error
        except SSEError as error:
            raise StreamProtocolError(str(error), 0) from error

    @asynccontextmanager
    async def _open(self, url: str, body: JsonObject) -> AsyncIterator[httpx.Response]:
        response = await sent(self._client, self._client.build_request("POST", url, json=body, headers=self._headers))
        try:
            yield response
        finally:
            await response.aclose()


def _refused(status: int, body: bytes) -> RequestRefused:
    try:
        return RequestRefused(status, ErrorResponse.model_validate_json(body).error)
    except ValidationError:
        return RequestRefused(status, ErrorInfo(message=body[:300].decode("utf-8", "replace"), type="HTTPError", code=status))


def _failed(url: str, error: httpx.HTTPError) -> ConnectionFailed:
    return ConnectionFailed(f"{url}: {error or type(error).__name__}")
