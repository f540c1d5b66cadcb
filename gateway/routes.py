"""The HTTP surface: OpenAI's endpoints."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.asked import CHAT, COMPLETION, Endpoint, Peek
from gateway.models import listing
from gateway.pipeline import Exchange, Services, error_event
from protocol.chat import ChatCompletion, ChatCompletionRequest
from protocol.completion import Completion, CompletionRequest
from protocol.errors import Overloaded, TandemError
from protocol.models import ModelList
from protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from service_kit.body import WORDS, documented, json_response, parse
from service_kit.disconnect import while_connected
from service_kit.offload import by_length
from service_kit.streaming import KEEP_ALIVE_SECONDS, event_stream

router = APIRouter(tags=["openai"])

_ERRORS = (400, 404, 409, 413, 502)
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
    """The models that are served, as render tells; with `formats` as derender does."""
    services: Services = request.app.state.services
    return json_response(await listing(services.render, services.derender))


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
    peek = await by_length(len(body), lambda: parse(Peek, body, WORDS))
    exchange = Exchange(request.app.state.services, endpoint, body, peek)
    if not peek.stream:
        return json_response(await while_connected(request, exchange.answer()))
    events = exchange.events()
    first = asyncio.ensure_future(anext(events))
    try:
        # The first event decides the status: until it has come, a failure can still be an HTTP error. But not for ever: a client,
        # and whatever is between, must see that somebody is there.
        await while_connected(request, _settled(first))
        if first.done():
            first.result()
    except BaseException:
        await _given_up(first, events)
        raise
    farewell = error_event(Overloaded("this server is shutting down; the answer is not complete"))
    return event_stream(_from(request, first, events), request.app.state.lifecycle, farewell=farewell)


async def _settled(first: "asyncio.Future[bytes]") -> None:
    await asyncio.wait({first}, timeout=KEEP_ALIVE_SECONDS)


async def _given_up(first: "asyncio.Future[bytes]", events: AsyncGenerator[bytes, None]) -> None:
    first.cancel()
    await asyncio.wait({first})
    await events.aclose()


async def _from(
    request: Request, first: "asyncio.Future[bytes]", events: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    services: Services = request.app.state.services
    services.metrics.streams.inc()
    try:
        try:
            yield await first
        except TandemError as error:
            yield error_event(error)
            return
        async for event in events:
            yield event
    finally:
        services.metrics.streams.dec()
        await _given_up(first, events)
