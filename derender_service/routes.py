"""The HTTP surface. A chunk's work is linear in its body, so small bodies are answered in place (see `service_kit.offload`)."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Discriminator, Tag, TypeAdapter

from derender_service.batch import derender_chat, derender_completion
from derender_service.derenderer import Derenderer
from derender_service.many import router as many_router
from derender_service.metrics import DerenderMetrics
from derender_service.signing import StateKeys
from derender_service.stream import derender_chat_chunk, derender_completion_chunk
from derender_service.websocket import router as websocket_router
from protocol.base import Wire
from protocol.chat import ChatCompletion
from protocol.completion import Completion
from protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderChatStreamResponse,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    DerenderCompletionStreamResponse,
    body_shape,
)
from service_kit.body import documented, json_response, parse_as
from service_kit.offload import by_size

router = APIRouter(tags=["derender"])
router.include_router(many_router)
router.include_router(websocket_router)

_CHAT: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Annotated[DerenderChatStreamRequest, Tag("stream:true")] | Annotated[DerenderChatRequest, Tag("stream:false")],
        Discriminator(body_shape),
    ]
)
_COMPLETION: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Annotated[DerenderCompletionStreamRequest, Tag("stream:true")] | Annotated[DerenderCompletionRequest, Tag("stream:false")],
        Discriminator(body_shape),
    ]
)
Work = Mapping[type[Wire], Callable[..., Wire]]
_CHAT_WORK: Work = {DerenderChatStreamRequest: derender_chat_chunk, DerenderChatRequest: derender_chat}
_COMPLETION_WORK: Work = {
    DerenderCompletionStreamRequest: derender_completion_chunk,
    DerenderCompletionRequest: derender_completion,
}
_ERRORS = (400, 404, 409, 413)


@router.post(
    "/v1/chat/completions/derender",
    **documented(
        DerenderChatRequest, DerenderChatStreamRequest, answers=(ChatCompletion, DerenderChatStreamResponse), errors=_ERRORS
    ),
)
async def chat(request: Request) -> Response:
    """A generate answer as a chat completion; with `stream: true` one chunk of a generate stream as one chat chunk."""
    return await _answer(request, _CHAT, _CHAT_WORK)


@router.post(
    "/v1/completions/derender",
    **documented(
        DerenderCompletionRequest,
        DerenderCompletionStreamRequest,
        answers=(Completion, DerenderCompletionStreamResponse),
        errors=_ERRORS,
    ),
)
async def completion(request: Request) -> Response:
    """Generate answers, one a prompt, as one completion; with `stream: true` one chunk of a generate stream as one chunk."""
    return await _answer(request, _COMPLETION, _COMPLETION_WORK)


async def _answer(request: Request, shapes: TypeAdapter[Any], work: Work) -> Response:
    derenderer: Derenderer = request.app.state.derenderer
    metrics: DerenderMetrics = request.app.state.derender_metrics
    keys: StateKeys = request.app.state.state_keys

    def answer(body: bytes) -> bytes:
        asked = parse_as(shapes, body)
        metrics.count(asked)
        return keys.outgoing(work[type(asked)](derenderer, keys.incoming(asked))).wire()

    return json_response(await by_size(await request.body(), answer))
