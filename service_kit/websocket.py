"""A WebSocket as a conversation: each message of the client is answered with one, in order, until one side closes."""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from service_kit.lifecycle import Lifecycle
from service_kit.offload import by_size
from service_kit.websocket_edge import GOING_AWAY

_FAREWELL = "this server is shutting down; go on at another one"


async def converse(websocket: WebSocket, lifecycle: Lifecycle, answer: Callable[[str | bytes], str]) -> None:
    """Accepts the connection and serves it to its end. `answer` takes a text or a binary message and does not raise.

    When the server drains, the answer in flight is sent, and the connection closed with 1001.
    """
    busy = asyncio.Lock()
    farewell = asyncio.create_task(_farewell(websocket, lifecycle, busy))
    try:
        with lifecycle.conversing():
            await websocket.accept()
            while (message := await websocket.receive())["type"] == "websocket.receive":
                text: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
                async with busy:
                    if websocket.application_state is not WebSocketState.CONNECTED:  # the farewell was quicker
                        return
                    await websocket.send_text(await by_size(text, answer))
    except (WebSocketDisconnect, OSError):  # what is sent to a client that is gone raises the one or the other
        return
    finally:
        farewell.cancel()
        await asyncio.wait({farewell})


async def _farewell(websocket: WebSocket, lifecycle: Lifecycle, busy: asyncio.Lock) -> None:
    await lifecycle.stopping.wait()
    async with busy:
        with contextlib.suppress(WebSocketDisconnect):
            await websocket.close(GOING_AWAY, _FAREWELL)
