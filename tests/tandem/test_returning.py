"""Connections come back to their pool whenever whoever waits for an answer is cancelled."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response

from tandem.returning import sent
from tests.live import serving


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    app = FastAPI()

    @app.post("/")
    async def answer() -> Response:
        return Response(b"x" * 2000)

    with serving(app) as url:
        yield url


def lost(client: httpx.AsyncClient) -> list[Any]:
    """Those that count as busy, and are not. (Not those that were cancelled between their opening and their first request: that is
    one turn of the event loop, and no matter of giving back.)"""
    pool: Any = client._transport._pool  # type: ignore[attr-defined]
    return [one for one in pool.connections if "ACTIVE" in one.info()]


async def cancelled_at_any_moment(call: Any, client: httpx.AsyncClient) -> None:
    """After every number of turns of the event loop that an answer may take: none is a moment at which a connection is lost."""
    cut = 0
    for turns in [*range(60), *(random.Random(0).randrange(200) for _ in range(100))]:
        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        cut += isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        assert lost(client) == []
    assert cut > 20
    await call()


def test_none_is_lost_when_a_call_is_cancelled(address: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient() as client:

            async def call() -> None:
                async with aclosing(await sent(client, client.build_request("POST", address))) as response:
                    assert len(await response.aread()) == 2000

            await cancelled_at_any_moment(call, client)

    asyncio.run(run())
