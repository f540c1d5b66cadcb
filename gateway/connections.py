"""Connections to the services behind the gateway: hundreds at once, and many given up half way.

httpx's own pool looks through all its connections and requests whenever one of them ends: with 64 at once a call took ten times as
long as it does here. And it loses a connection that is cancelled while it is given back. So httpx speaks through aiohttp.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx
from aiohttp.http_exceptions import HttpProcessingError
from httpx_aiohttp import AiohttpTransport

_KEEP_SECONDS = 30.0


def transport() -> httpx.AsyncBaseTransport:
    """As many connections as there are calls; free ones are kept for a while."""

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS, ssl=httpx.create_ssl_context(trust_env=False))
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return _Transport(client=session)


class _Transport(AiohttpTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _told():
            response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Body(response.stream)
        return response


class _Body(httpx.AsyncByteStream):
    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _told():
            async for part in self._body:
                yield part

    async def aclose(self) -> None:
        await self._body.aclose()


@contextmanager
def _told() -> Iterator[None]:
    """What httpx-aiohttp leaves as aiohttp raises it (an answer that is no HTTP, for one)."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError) as error:
        raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error
