"""Where a stream request stands: what its beginning said, told by the request itself on the first chunk and by the state later."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from derender_service.derenderer import Derenderer
from derender_service.opening import context_of, echoed
from derender_service.states import opened, replayed
from protocol.derender import (
    DerenderChatStreamRequest,
    DerenderCompletionStreamRequest,
    DerenderContext,
    DerenderStreamState,
)
from protocol.errors import BadRequest
from protocol.parse_context import ParseContext

StreamRequest = DerenderChatStreamRequest | DerenderCompletionStreamRequest


@dataclass(frozen=True)
class Standing:
    """`prefix` is the echo, and `prompt_token_ids` are there, until the choice has opened."""

    context: DerenderContext
    state: DerenderStreamState
    prefix: str
    prompt_token_ids: list[int] | None


def standing(derenderer: Derenderer, request: StreamRequest, *, parsed: bool) -> Standing:
    """`parsed`: the output is to be read by the parser.

    Raises `BadRequest` or `ProfileMismatch`.
    """
    derenderer.check_profile(request.profile)
    chunk, state = request.generate_chunk, request.stream_state
    prompt = request.prompt_token_ids if request.prompt_token_ids is not None else chunk.prompt_token_ids
    derenderer.check_ids(prompt, "prompt_token_ids")
    if state is not None:
        derenderer.check_profile(state.profile)
        derenderer.check_ids(state.logprob_context_token_ids, "stream_state.logprob_context_token_ids")
    told = request.told
    context = _context(derenderer, request, told, prompt)
    # A chunk without a choice may come first; the choice then still opens with its first own chunk.
    opening = state is None or not state.role_sent
    prefix = echoed(derenderer, told, prompt) if opening else ""
    if prefix and not chunk.choices:
        # The echo belongs to a choice, and a state of 4 kB cannot keep a prompt for a later one.
        raise BadRequest("a stream with echo must begin with a chunk that has a choice", param="generate_chunk.choices")
    if state is None or (parsed and _lacks_parser(state)):
        fresh = _fresh(derenderer, request, told, context, prompt, prefix=prefix, parsed=parsed)
        state = fresh if state is None else replayed(derenderer, context, fresh, state)
    return Standing(context, state, prefix, prompt if opening else None)


def _context(
    derenderer: Derenderer, request: StreamRequest, told: ParseContext | None, prompt: Sequence[int] | None
) -> DerenderContext:
    state = request.stream_state
    if state is None or state.context is None:
        counted = request.prompt_tokens if request.prompt_tokens is not None else len(prompt or ())
        return context_of(derenderer, told, counted, replay=request.replay)
    if request.replay and not state.context.replay:
        raise BadRequest("replay must be asked for from the stream's first chunk on: the output so far is gone", param="replay")
    return state.context


def _fresh(
    derenderer: Derenderer,
    request: StreamRequest,
    told: ParseContext | None,
    context: DerenderContext,
    prompt: Sequence[int] | None,
    *,
    prefix: str,
    parsed: bool,
) -> DerenderStreamState:
    created = request.generate_chunk.created
    created = created if created is not None else request.created
    chat_request = None
    if parsed:
        derenderer.check_parsable(chat_request=told, prompt_token_ids=prompt, prompt_needed=True)
        chat_request = derenderer.as_told(getattr(request, "chat_request", None) or told)
    return opened(
        derenderer,
        context,
        prompt,
        created=created if created is not None else int(time.time()),
        prefix=prefix,
        chat_request=chat_request,
    )


def _lacks_parser(state: DerenderStreamState) -> bool:
    """Whether the parser's part of the state must be made: it has none, or one that stands behind its own history, as after a
    server that keeps the history alone. Raises `BadRequest` where it can not be."""
    if state.checkpoint is not None:
        return bool(state.output_token_ids) and len(state.output_token_ids) != state.token_count
    if state.token_count or (state.role_sent and state.prev_tokens and not state.output_token_ids):
        raise BadRequest(
            "the state has neither a checkpoint nor the history that one could be made of", param="stream_state.checkpoint"
        )
    return True
