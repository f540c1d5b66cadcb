"""Event streams as HTTP answers: kept alive while nothing happens, ended with a word when the service must stop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi.responses import StreamingResponse

from protocol.sse import KEEP_ALIVE
from service_kit.lifecycle import Lifecycle

KEEP_ALIVE_SECONDS = 15.0

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def event_stream(source: AsyncGenerator[bytes, None], lifecycle: Lifecycle, *, farewell: bytes) -> StreamingResponse:
    """`source` yields encoded events. It is closed on every path, so what it holds open (an engine's request, a connection) is let
    go when the client leaves. When the drain limit passes, the stream ends with `farewell`, an encoded error event."""
    return StreamingResponse(_kept_alive(source, lifecycle, farewell), media_type="text/event-stream", headers=_HEADERS)


async def _kept_alive(source: AsyncGenerator[bytes, None], lifecycle: Lifecycle, farewell: bytes) -> AsyncIterator[bytes]:
    expired = asyncio.ensure_future(lifecycle.expired.wait())
    step = asyncio.ensure_future(anext(source, None))
    try:
        async with aclosing(source):
            while not expired.done():
                await asyncio.wait({step, expired}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    if not expired.done():
                        yield KEEP_ALIVE
                    continue
                event = step.result()
                if event is None:
                    return
                yield event
                step = asyncio.ensure_future(anext(source, None))
            await _ended(step)
        yield farewell
    finally:
        expired.cancel()
        await _ended(step)


async def _ended(task: "asyncio.Future[bytes | None]") -> None:
    """The generator can be closed only once no `anext` of it runs."""
    task.cancel()
    await asyncio.wait({task})
