"""One chunk of a generate stream, derendered: `(chunk, state) -> (chunk, state)`."""

import time
from dataclasses import dataclass

from derender_service.answers import chat_delta, completion_choice
from derender_service.calls import call_id
from derender_service.choice import Advance, advance
from derender_service.derenderer import Derenderer
from derender_service.opening import Request, context_of, echoed
from derender_service.states import begun, kept, opened, replayed
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
from protocol.usage import CompletionTokensDetails, Usage

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
    answer_id = request.generate_chunk.request_id or FALLBACK_ID
    start = _open(derenderer, request, request.chat_request, parsed=derenderer.parsing is not None)
    step, state = _advance(derenderer, request, start)
    choices = []
    if step is not None:
        index = request.generate_chunk.choices[0].index
        opens = not start.state.role_sent
        prefix = start.prefix if opens else ""
        choices = [chat_delta(derenderer, start.context, answer_id, index, step, prefix=prefix, opens=opens)]
        state = state.model_copy(update={"role_sent": True, **_given_ids(derenderer, start.context, state, answer_id, index, step)})
    chunk = ChatCompletionChunk(
        id=answer_id,
        created=state.created or 0,
        model=model,
        choices=choices,
        usage=_usage(request, start.context, state if state.checkpoint is not None else None),
        prompt_token_ids=start.prompt_token_ids if start.context.return_token_ids and choices else None,
        timings=request.generate_chunk.timings,
    )
    return DerenderChatStreamResponse(chunk=chunk, stream_state=state)


def derender_completion_chunk(derenderer: Derenderer, request: DerenderCompletionStreamRequest) -> DerenderCompletionStreamResponse:
    """Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    start = _open(derenderer, request, request.completion_request, parsed=False)
    step, state = _advance(derenderer, request, start)
    choices = []
    if step is not None:
        index = request.generate_chunk.choices[0].index
        choices = [
            completion_choice(derenderer, start.context, index, step, prefix=start.prefix, prompt_token_ids=start.prompt_token_ids)
        ]
        state = state.model_copy(update={"role_sent": True})
    chunk = CompletionChunk(
        id=request.generate_chunk.request_id or FALLBACK_ID,
        created=state.created or 0,
        model=model,
        choices=choices,
        usage=_usage(request, start.context, None),
        timings=request.generate_chunk.timings,
    )
    return DerenderCompletionStreamResponse(chunk=chunk, stream_state=state)


def _open(derenderer: Derenderer, request: StreamRequest, original: Request | None, *, parsed: bool) -> _Opened:
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
        context = context_of(derenderer, original, counted, replay=request.replay)
    prefix = echoed(derenderer, original, prompt) if opening else ""
    if prefix and not chunk.choices:
        # The echo belongs to a choice, and a state of 4 kB cannot keep a prompt for a later one.
        raise BadRequest("a stream with echo must begin with a chunk that has a choice", param="generate_chunk.choices")
    if request.replay and not context.replay:
        raise BadRequest("replay must be asked for from the stream's first chunk on: the output so far is gone", param="replay")
    if state is None or _needs_opening(state, parsed):
        created = chunk.created if chunk.created is not None else request.created
        created = created if created is not None else int(time.time())
        chat_request = None
        if parsed and isinstance(request, DerenderChatStreamRequest):
            derenderer.check_parsable(chat_request=original, prompt_token_ids=prompt, prompt_needed=True)
            chat_request = derenderer.told(original)
        fresh = opened(derenderer, context, prompt, created=created, prefix=prefix, chat_request=chat_request)
        state = fresh if state is None else replayed(derenderer, context, fresh, state)
    return _Opened(context, state, prefix, prompt if opening else None)


def _needs_opening(state: DerenderStreamState, parsed: bool) -> bool:
    """Whether a state that a parser needs to go on from must be made: it has none, or one that stands behind its own history, as
    after a server that keeps the history alone. Raises `BadRequest` where it can not be."""
    if not parsed:
        return False
    if state.checkpoint is not None:
        return bool(state.output_token_ids) and len(state.output_token_ids) != state.token_count
    if state.token_count or (state.role_sent and state.prev_tokens and not state.output_token_ids):
        raise BadRequest(
            "the state has neither a checkpoint nor the history that one could be made of", param="stream_state.checkpoint"
        )
    return True


def _advance(derenderer: Derenderer, request: StreamRequest, start: _Opened) -> tuple[Advance | None, DerenderStreamState]:
    """The step of the chunk's choice; None where there is none, or where the choice has ended already."""
    choices, state = request.generate_chunk.choices, start.state
    if not choices or state.stopped:
        return None, state
    (choice,) = choices
    derenderer.check_ids(choice.token_ids, "generate_chunk.choices.0.token_ids")
    derenderer.check_logprobs(choice.logprobs, "generate_chunk.choices.0.logprobs")
    length = start.context.prompt_tokens + state.token_count + len(choice.token_ids or ())
    derenderer.check_length(length, "generate_chunk.choices.0.token_ids")
    reading = begun(derenderer, start.context, state)
    last = choice.finish_reason is not None
    step, after, place = advance(reading, derenderer.eos_token_ids, state, start.context, choice, last=last)
    return step, kept(derenderer, start.context, after, place, step.token_ids)


def _given_ids(
    derenderer: Derenderer, context: DerenderContext, state: DerenderStreamState, answer_id: str, index: int, step: Advance
) -> dict[str, list[str]]:
    """For servers that go on from the history: the ids of calls that were given, which they could not derive."""
    if not context.replay:
        return {}
    new = [call_id(derenderer.call_ids(context), answer_id, index, part) for part in step.calls if part.name is not None]
    return {"last_tool_call_ids": [*state.last_tool_call_ids, *new]} if new else {}


def _usage(request: StreamRequest, context: DerenderContext, parsed: DerenderStreamState | None) -> Usage | None:
    """The worker's counts; the prompt's as the caller knows it, where it does. `parsed`: the state that knows the reasoning's."""
    told = request.generate_chunk.usage
    if told is None:
        return None
    prompt = request.prompt_tokens if request.prompt_tokens is not None else (context.prompt_tokens or told.prompt_tokens)
    completion = told.completion_tokens or 0
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if parsed is None:
        return told.model_copy(update=counts)
    details = CompletionTokensDetails(reasoning_tokens=parsed.reasoning_tokens)
    return told.model_copy(update={**counts, "completion_tokens_details": details})
