"""One chunk of a generate stream, derendered: `(chunk, state) -> (chunk, state)`."""

import time
from dataclasses import dataclass

from derender_service.answers import chat_delta, completion_choice
from derender_service.choice import Advance, advance
from derender_service.derenderer import Derenderer
from derender_service.opening import Request, context_of, echoed, first_state
from protocol.chat import ChatCompletionChunk
from protocol.completion import CompletionChunk
from protocol.derender import (
    DerenderChatStreamRequest,
    DerenderChatStreamResponse,
    DerenderCompletionStreamRequest,
    DerenderCompletionStreamResponse,
    DerenderContext,
    DerenderStreamState,
)
from protocol.errors import BadRequest
from protocol.usage import Usage

StreamRequest = DerenderChatStreamRequest | DerenderCompletionStreamRequest

FALLBACK_ID = "derender"
"""The answer's id where the generate stream names none: a constant, so that a retry gives the same bytes."""


@dataclass(frozen=True)
class _Opened:
    """A stream request with what its beginning said: from the request itself on the first chunk, from the state later."""

    context: DerenderContext
    state: DerenderStreamState
    prefix: str
    prompt_token_ids: list[int] | None


def derender_chat_chunk(derenderer: Derenderer, request: DerenderChatStreamRequest) -> DerenderChatStreamResponse:
    """Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    opened = _open(derenderer, request, request.chat_request)
    step, state = _advance(derenderer, request, opened)
    choices = []
    if step is not None:
        index = request.generate_chunk.choices[0].index
        opens = not opened.state.role_sent
        prefix = opened.prefix if opens else ""
        choices = [chat_delta(derenderer, opened.context, index, step, prefix=prefix, opens=opens)]
        state = state.model_copy(update={"role_sent": True})
    chunk = ChatCompletionChunk(
        id=request.generate_chunk.request_id or FALLBACK_ID,
        created=state.created or 0,
        model=model,
        choices=choices,
        usage=_usage(request, opened.context),
        prompt_token_ids=opened.prompt_token_ids if opened.context.return_token_ids and choices else None,
        timings=request.generate_chunk.timings,
    )
    return DerenderChatStreamResponse(chunk=chunk, stream_state=state)


def derender_completion_chunk(derenderer: Derenderer, request: DerenderCompletionStreamRequest) -> DerenderCompletionStreamResponse:
    """Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    opened = _open(derenderer, request, request.completion_request)
    step, state = _advance(derenderer, request, opened)
    choices = []
    if step is not None:
        index = request.generate_chunk.choices[0].index
        choices = [
            completion_choice(
                derenderer, opened.context, index, step, prefix=opened.prefix, prompt_token_ids=opened.prompt_token_ids
            )
        ]
        state = state.model_copy(update={"role_sent": True})
    chunk = CompletionChunk(
        id=request.generate_chunk.request_id or FALLBACK_ID,
        created=state.created or 0,
        model=model,
        choices=choices,
        usage=_usage(request, opened.context),
        timings=request.generate_chunk.timings,
    )
    return DerenderCompletionStreamResponse(chunk=chunk, stream_state=state)


def _open(derenderer: Derenderer, request: StreamRequest, original: Request | None) -> _Opened:
    derenderer.check_profile(request.profile)
    chunk, state = request.generate_chunk, request.stream_state
    prompt = request.prompt_token_ids if request.prompt_token_ids is not None else chunk.prompt_token_ids
    derenderer.check_ids(prompt, "prompt_token_ids")
    if state is not None:
        derenderer.check_profile(state.profile)
        derenderer.check_ids(state.logprob_context_token_ids, "stream_state.logprob_context_token_ids")
    # A chunk without a choice may come first; the choice then still opens with its first own chunk.
    opening = state is None or not state.role_sent
    if state is not None and state.context is not None:
        context = state.context
    else:
        counted = request.prompt_tokens if request.prompt_tokens is not None else len(prompt or ())
        context = context_of(original, counted)
    prefix = echoed(derenderer, original, prompt) if opening else ""
    if prefix and not chunk.choices:
        # The echo belongs to a choice, and a state of 4 kB cannot keep a prompt for a later one.
        raise BadRequest("a stream with echo must begin with a chunk that has a choice", param="generate_chunk.choices")
    if state is None:
        created = chunk.created if chunk.created is not None else request.created
        created = created if created is not None else int(time.time())
        state = first_state(derenderer, context, prompt, created=created, prefix=prefix)
    return _Opened(context, state, prefix, prompt if opening else None)


def _advance(derenderer: Derenderer, request: StreamRequest, opened: _Opened) -> tuple[Advance | None, DerenderStreamState]:
    """The step of the chunk's choice; None where there is none, or where the choice has ended already."""
    choices, state = request.generate_chunk.choices, opened.state
    if not choices or state.stopped:
        return None, state
    (choice,) = choices
    derenderer.check_ids(choice.token_ids, "generate_chunk.choices.0.token_ids")
    derenderer.check_logprobs(choice.logprobs, "generate_chunk.choices.0.logprobs")
    length = opened.context.prompt_tokens + state.token_count + len(choice.token_ids or ())
    derenderer.check_length(length, "generate_chunk.choices.0.token_ids")
    return advance(derenderer.detokenizer, derenderer.eos_token_ids, state, opened.context, choice)


def _usage(request: StreamRequest, context: DerenderContext) -> Usage | None:
    """The worker's counts; the prompt's as the caller knows it, where it does."""
    told = request.generate_chunk.usage
    if told is None:
        return None
    prompt = request.prompt_tokens if request.prompt_tokens is not None else (context.prompt_tokens or told.prompt_tokens)
    completion = told.completion_tokens or 0
    return told.model_copy(update={"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
