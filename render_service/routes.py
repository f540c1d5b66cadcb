"""The HTTP side: bodies to the pool of threads (law L10), answers back."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from protocol.anthropic import MessagesRequest
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.generate import GenerateRequest
from protocol.responses import ResponsesRequest
from protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from render_service import anthropic, chat, completion, responses, tokenization
from render_service.guests import BroughtTemplate, Guests
from render_service.renderer import Renderer
from service_kit import context
from service_kit.body import documented, json_response
from service_kit.offload import offload

router = APIRouter(tags=["render"])


@router.post("/v1/chat/completions/render", **documented(ChatCompletionRequest, answers=(GenerateRequest,)))
async def render_chat(request: Request) -> Response:
    """Turns a chat completion request into the generate request that a worker takes: prompt token ids and sampling parameters."""
    return await _answer(request, partial(chat.render, request_id=context.request_id.get()))


@router.post("/v1/messages/render", **documented(MessagesRequest, answers=(GenerateRequest,)))
async def render_messages(request: Request) -> Response:
    """Turns a request of Anthropic's Messages API into the same."""
    return await _answer(request, partial(anthropic.render, request_id=context.request_id.get()))


@router.post("/v1/responses/render", **documented(ResponsesRequest, answers=(GenerateRequest,)))
async def render_responses(request: Request) -> Response:
    """Turns a request of OpenAI's Responses API, with the whole conversation as its input, into the same."""
    return await _answer(request, partial(responses.render, request_id=context.request_id.get()))


@router.post("/v1/completions/render", **documented(CompletionRequest, answers=(GenerateRequest,), as_list=True))
async def render_completion(request: Request) -> Response:
    """Turns a completion request into generate requests, one for each prompt."""
    return await _answer(request, partial(completion.render, request_id=context.request_id.get()))


@router.post("/tokenize", **documented(TokenizeRequest, answers=(TokenizeResponse,)))
async def tokenize(request: Request) -> Response:
    """The token ids of a text or a chat."""
    return await _answer(request, tokenization.tokenize)


@router.post("/detokenize", **documented(DetokenizeRequest, answers=(DetokenizeResponse,)))
async def detokenize(request: Request) -> Response:
    """The text of token ids, special tokens included."""
    return await _answer(request, tokenization.detokenize)


async def _answer(request: Request, work: Callable[[Renderer, bytes], bytes]) -> Response:
    body = await request.body()
    renderer: Renderer = request.app.state.renderer
    try:
        answer = await offload(lambda: work(renderer, body), size=len(body))
    except BroughtTemplate:
        guests: Guests = request.app.state.guests
        hosting = replace(renderer, guest_template=guests.template)
        answer = await guests.run(lambda: work(hosting, body))
    return json_response(answer)
