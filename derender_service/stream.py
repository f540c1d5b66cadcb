"""One chunk of a generate stream, derendered: `(chunk, state) -> (chunk, state)`."""

from derender_service.answers import chat_delta, completion_choice
from derender_service.calls import call_id
from derender_service.choice import Advance, advance
from derender_service.derenderer import Derenderer
from derender_service.standing import Standing, StreamRequest, standing
from derender_service.states import begun, kept
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
from protocol.usage import CompletionTokensDetails, Usage

FALLBACK_ID = "derender"
"""The answer's id where the generate stream names none: a constant, so that a retry gives the same bytes."""


def derender_chat_chunk(derenderer: Derenderer, request: DerenderChatStreamRequest) -> DerenderChatStreamResponse:
    """Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    answer_id = request.generate_chunk.request_id or FALLBACK_ID
    start = standing(derenderer, request, parsed=derenderer.parsing is not None)
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
    start = standing(derenderer, request, parsed=False)
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


def _advance(derenderer: Derenderer, request: StreamRequest, start: Standing) -> tuple[Advance | None, DerenderStreamState]:
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
