"""The stream routes over WebSockets: one connection per stream, one message per chunk."""

from collections.abc import Callable

from fastapi import APIRouter, WebSocket

from derender_service.conversation import Answer, Conversation, M
from derender_service.derenderer import Derenderer
from derender_service.stream import derender_chat_chunk, derender_completion_chunk
from protocol.derender_transports import CHAT_PATH, COMPLETION_PATH, DerenderChatMessage, DerenderCompletionMessage
from service_kit.websocket import converse

router = APIRouter(tags=["derender"])


@router.websocket(f"{CHAT_PATH}/ws")
async def chat(websocket: WebSocket) -> None:
    """Each message is a `DerenderChatMessage`."""
    await _serve(websocket, DerenderChatMessage, derender_chat_chunk)


@router.websocket(f"{COMPLETION_PATH}/ws")
async def completion(websocket: WebSocket) -> None:
    """Each message is a `DerenderCompletionMessage`."""
    await _serve(websocket, DerenderCompletionMessage, derender_completion_chunk)


async def _serve(websocket: WebSocket, shape: type[M], work: Callable[[Derenderer, M], Answer]) -> None:
    state = websocket.app.state
    conversation = Conversation(state.derenderer, state.state_keys, state.derender_metrics, shape, work)
    await converse(websocket, state.lifecycle, conversation.answer)
