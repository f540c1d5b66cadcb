"""HTTP calls whose connections come back, whenever the caller is cancelled."""

import asyncio
from collections.abc import AsyncIterator

import httpx


async def sent(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """The answer, opened but not read; to be closed. Raises as httpx does."""
    response = await client.send(request, stream=True)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _Returned(response.stream)
    return response


class _Returned(httpx.AsyncByteStream):
    """An answer's body. httpcore gives a connection back in several steps, and one that is cancelled between them is lost to its
    pool for good: neither free nor closed. So the steps are a task of their own, which goes on and is waited for."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield part

    async def aclose(self) -> None:
        closing = asyncio.ensure_future(self._body.aclose())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise
