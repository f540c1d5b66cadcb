"""The HTTP surface: OpenAI's endpoints."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.asked import CHAT, COMPLETION, Endpoint, Peek
from gateway.pipeline import Exchange, Services, error_event
from protocol.chat import ChatCompletion, ChatCompletionRequest
from protocol.completion import Completion, CompletionRequest
from protocol.errors import Overloaded
from protocol.models import ModelList
from protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from service_kit.body import documented, json_response, parse
from service_kit.disconnect import while_connected
from service_kit.offload import by_size
from service_kit.streaming import event_stream

router = APIRouter(tags=["openai"])

_ERRORS = (400, 401, 404, 413, 502, 503)
_EVENTS = "One chunk of the answer per event, then `[DONE]`. A failure on the way is an event with `error`, then the end."


@router.post(CHAT.path, **documented(ChatCompletionRequest, answers=(ChatCompletion,), stream=_EVENTS, errors=_ERRORS))
async def chat(request: Request) -> Response:
    """A chat completion."""
    return await _exchange(request, CHAT)


@router.post(COMPLETION.path, **documented(CompletionRequest, answers=(Completion,), stream=_EVENTS, errors=_ERRORS))
async def completion(request: Request) -> Response:
    """A text completion."""
    return await _exchange(request, COMPLETION)


@router.get("/v1/models", **documented(answers=(ModelList,), errors=(502,)))
async def models(request: Request) -> Response:
    """The models that are served."""
    services: Services = request.app.state.services
    return json_response(await services.render.get("/v1/models"))


@router.post("/tokenize", **documented(TokenizeRequest, answers=(TokenizeResponse,), errors=_ERRORS))
async def tokenize(request: Request) -> Response:
    """The render service's answer, passed on."""
    services: Services = request.app.state.services
    return json_response(await services.render.post("/tokenize", await request.body()))


@router.post("/detokenize", **documented(DetokenizeRequest, answers=(DetokenizeResponse,), errors=_ERRORS))
async def detokenize(request: Request) -> Response:
    """The render service's answer, passed on."""
    services: Services = request.app.state.services
    return json_response(await services.render.post("/detokenize", await request.body()))


async def _exchange(request: Request, endpoint: Endpoint) -> Response:
    body = await request.body()
    peek = await by_size(body, lambda raw: parse(Peek, raw))
    exchange = Exchange(request.app.state.services, endpoint, body, peek)
    if not peek.stream:
        return json_response(await while_connected(request, exchange.answer()))
    events = exchange.events()
    # The first event decides the status: until it has come, a failure can still be an HTTP error.
    first = await while_connected(request, _next(events))
    farewell = error_event(Overloaded("this server is shutting down; the answer is not complete"))
    return event_stream(_counted(request, first, events), request.app.state.lifecycle, farewell=farewell)


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events)


async def _counted(request: Request, first: bytes, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    services: Services = request.app.state.services
    services.metrics.streams.inc()
    try:
        yield first
        async for event in events:
            yield event
    finally:
        services.metrics.streams.dec()
        await events.aclose()
