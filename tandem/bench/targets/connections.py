"""Connections to one server, as many as requests run at once."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType

import httpx

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Connections:
    """A client for each connection, and the one that was used last is used next.

    httpx's own pool looks through all its requests and connections whenever one of them ends, and not in their order: with 64
    requests at once some waited there for seconds, which a first token's time would then have told of the server.
    """

    def __init__(self, api_key: str | None, tls: ssl.SSLContext) -> None:
        # A server that packs its stream tells of it in other pieces than it made.
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._tls = tls
        self._free: list[httpx.AsyncClient] = []
        self._all = AsyncExitStack()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Without a timeout of its own: how long is for the load to say."""
        client = self._free.pop() if self._free else await self._made()
        try:
            yield client
        except BaseException:
            # Given up half way: httpx might count its one connection as busy for ever.
            await client.aclose()
            raise
        self._free.append(client)

    async def _made(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(headers=self._headers, timeout=None, limits=_ONE, verify=self._tls)
        return await self._all.enter_async_context(client)

    async def __aenter__(self) -> "Connections":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._all.aclose()
