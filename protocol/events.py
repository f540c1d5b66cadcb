"""The generate stream: one typed event per payload, each of them a valid vLLM stream chunk as well.

A choice is any number of `token` events and one `done`. The token that stops a choice makes no `token` event: it travels in the
`done`. The last `done` of a request carries its `usage` and `timings`. A failed request ends in one `error`. Nothing follows a
terminal.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from protocol.base import Closed, Integer, Maybe, Natural, RequestId, TokenId
from protocol.errors import ErrorInfo
from protocol.generate import FinishReason, StopReason, Timings
from protocol.logprobs import TokenLogprobs
from protocol.sse import encode
from protocol.usage import Usage


class TokenChoice(Closed):
    """`token_index` is the place of the first id within its choice: contiguous from 0 (or from the resumed length)."""

    index: Natural
    token_index: Natural
    token_ids: Annotated[list[TokenId], Field(min_length=1)]
    logprobs: TokenLogprobs | None = None
    finish_reason: None = None
    stop_reason: None = None


class TokenEvent(Closed):
    """Tokens sampled in one step, sent at once. `seed` and `prompt_token_ids` come on a request's first event, if at all."""

    type: Literal["token"] = "token"
    request_id: RequestId
    created: Natural
    choices: Annotated[list[TokenChoice], Field(min_length=1, max_length=1)]
    seed: Maybe[Integer] = None
    prompt_token_ids: Maybe[list[TokenId]] = None


class DoneChoice(Closed):
    """`token_ids` holds the stopping token, or nothing. `output_tokens` counts all ids of the choice, that one included."""

    index: Natural
    token_index: Natural
    token_ids: list[TokenId]
    logprobs: Maybe[TokenLogprobs] = None
    output_tokens: Natural
    finish_reason: FinishReason
    stop_reason: StopReason = None


class DoneEvent(Closed):
    """The terminal of one choice. `timings` is None only for streams of other servers, which do not tell them."""

    type: Literal["done"] = "done"
    request_id: RequestId
    created: Natural
    choices: Annotated[list[DoneChoice], Field(min_length=1, max_length=1)]
    usage: Maybe[Usage] = None
    timings: Maybe[Timings] = None
    seed: Maybe[Integer] = None
    prompt_token_ids: Maybe[list[TokenId]] = None


class ErrorEvent(Closed):
    """The terminal of a request that failed, at whatever point."""

    type: Literal["error"] = "error"
    request_id: RequestId
    error: ErrorInfo


OutputEvent = TokenEvent | DoneEvent
GenerateEvent = OutputEvent | ErrorEvent

_EVENT: TypeAdapter[GenerateEvent] = TypeAdapter(Annotated[GenerateEvent, Field(discriminator="type")])


def parse_event(payload: str | bytes | dict[str, Any]) -> GenerateEvent:
    """A payload of our own producing, strictly. Raises pydantic's `ValidationError`. For foreign streams see `normalise`."""
    return _EVENT.validate_python(payload) if isinstance(payload, dict) else _EVENT.validate_json(payload)


def encode_event(event: GenerateEvent) -> bytes:
    """The event as it travels: `event:` repeats the type."""
    return encode(event.wire(), event.type)
