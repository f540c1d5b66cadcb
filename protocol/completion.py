"""OpenAI's `/v1/completions`: requests, answers and stream chunks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocol.base import Integer, Maybe, Positive, TokenId, Wire
from protocol.errors import field_error
from protocol.generate import Timings
from protocol.logprobs import CompletionLogprobs
from protocol.requests import GenerationRequest
from protocol.usage import Usage

MAX_PROMPTS = 1024

Ids = Annotated[list[TokenId], Field(min_length=1)]
Prompt = (
    str
    | Ids
    | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
    | Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS)]
)


class CompletionRequest(GenerationRequest):
    """`prompt` is a text, ids, or a list of either; each item of a list is a request of its own."""

    prompt: Prompt
    max_tokens: Positive | None = 16
    logprobs: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    echo: bool | None = False
    suffix: str | None = None
    best_of: Integer | None = None
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _check(self) -> "CompletionRequest":
        if self.prompt == "":
            raise field_error("prompt", "must not be empty")
        if self.max_tokens is None:
            self.max_tokens = 16
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "needs stream: true")
        return self


class CompletionChoice(Wire):
    """`stop_reason` is the stop string or token id that ended the choice, None for the eos token and for the other reasons."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Maybe[list[int]] = None
    prompt_token_ids: Maybe[list[int]] = None


class Completion(Wire):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Maybe[Usage] = None
    system_fingerprint: Maybe[str] = None
    timings: Maybe[Timings] = None


class CompletionChunk(Completion):
    """One piece of a stream: the same shape, each `text` a delta."""
