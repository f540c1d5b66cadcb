"""`POST /v1/chat/completions/derender` and `/v1/completions/derender`: requests, answers, and the state a client carries.

`stream` chooses the body: false (or absent) for a whole answer, true for one chunk of the generate stream. The state belongs to one
choice of one request; the client sends it back, unread, with the next chunk of that choice, to any replica.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from protocol.base import Closed, JsonObject, Maybe, Natural, Positive, RequestId, TokenId, Wire
from protocol.chat import ChatCompletionChunk, ChatCompletionRequest
from protocol.completion import CompletionChunk, CompletionRequest
from protocol.errors import ErrorInfo, field_error
from protocol.generate import FinishReason, GenerateResponse, StopReason, Timings
from protocol.logprobs import TokenLogprobs, check_entries
from protocol.parse_context import ParseContext
from protocol.sampling import MAX_STOP_BYTES, StopStrings, StopTokenIds
from protocol.usage import Usage

T = TypeVar("T")
Terse = Annotated[T, Field(exclude_if=lambda value: not value)]
"""A field that is left out of the JSON while it is empty, false or zero: the state stays small."""

MAX_WINDOW = 1024
MAX_WINDOW_TOKEN = 1024
MAX_HISTORY = 4_194_304
MAX_TYPES = 262_144
MAX_CALL_ID = 1024
"""Characters: some models write their ids themselves."""


class DerenderContext(Closed):
    """What later chunks need of the request and the prompt, so that both travel once. Names and defaults are the request's own.

    `tool_name` is the function that `tool_choice` names. `single_call`: no parallel tool calls. `parameter_types`: a table of the
    tools' parameters that are not plain strings, packed, for formats that write values as text. `replay`: the history is kept
    too. `completion`: the stream began with a completion request.
    """

    prompt_tokens: Terse[Natural] = 0
    stop: Terse[StopStrings] = []
    stop_token_ids: Terse[StopTokenIds] = []
    ignore_eos: Terse[bool] = False
    include_stop_str_in_output: Terse[bool] = False
    min_tokens: Terse[Natural] = 0
    keep_special_tokens: Terse[bool] = False
    join_special_tokens: Terse[bool] = False
    return_token_ids: Terse[bool] = False
    tokens_as_ids: Terse[bool] = False
    tool_choice: Annotated[Literal["none", "auto", "required", "named"], Field(exclude_if=lambda value: value == "none")] = "none"
    tool_name: Terse[Annotated[str, Field(max_length=256)]] = ""
    single_call: Terse[bool] = False
    hide_reasoning: Terse[bool] = False
    parameter_types: Terse[Annotated[str, Field(max_length=MAX_TYPES)]] = ""
    replay: Terse[bool] = False
    completion: Terse[bool] = False


class DerenderStreamState(Closed):
    """The state of one choice between two chunks. It comes from the client: every field is bounded and checked.

    `prev_tokens[prefix_offset:read_offset]` are the last tokens whose text was sent, `prev_tokens[read_offset:]` those whose
    text waits for more bytes (vLLM's window). `output_token_ids` and `output_chunk_lens` are the replay history. `token_count`
    is the number of output ids so far, `reasoning_tokens` of them were reasoning. `tool_call_count` calls have begun.
    `checkpoint` is the parser's. `held_text` may still become a stop string (`held_reasoning`: it is reasoning); `stopped` says
    that the choice has ended and nothing more is due. `signature` is there when the server signs its states (`--state-key`).
    """

    prev_tokens: Terse[Annotated[list[Annotated[str, Field(max_length=MAX_WINDOW_TOKEN)]], Field(max_length=MAX_WINDOW)]] = []
    prefix_offset: Terse[Natural] = 0
    read_offset: Terse[Natural] = 0
    role_sent: Terse[bool] = False
    tools_streamed: Terse[bool] = False
    logprob_context_token_ids: Terse[Annotated[list[TokenId], Field(max_length=4)]] = []
    logprob_text_offset: Terse[Natural] = 0
    output_token_ids: Terse[Annotated[list[TokenId], Field(max_length=MAX_HISTORY)]] = []
    output_chunk_lens: Terse[Annotated[list[Positive], Field(max_length=MAX_HISTORY)]] = []
    last_tool_call_ids: Terse[Annotated[list[Annotated[str, Field(max_length=MAX_CALL_ID)]], Field(max_length=MAX_HISTORY)]] = []
    checkpoint: Maybe[JsonObject] = None
    created: Maybe[Natural] = None
    profile: Maybe[Annotated[str, Field(max_length=128)]] = None
    token_count: Terse[Natural] = 0
    context: Maybe[DerenderContext] = None
    reasoning_tokens: Terse[Natural] = 0
    tool_call_count: Terse[Natural] = 0
    held_text: Terse[Annotated[str, Field(max_length=MAX_STOP_BYTES)]] = ""
    held_reasoning: Terse[bool] = False
    stopped: Terse[bool] = False
    signature: Maybe[Annotated[str, Field(max_length=128)]] = None

    @model_validator(mode="after")
    def _check(self) -> "DerenderStreamState":
        if not self.prefix_offset <= self.read_offset <= len(self.prev_tokens):
            raise field_error(
                "read_offset",
                f"offsets must lie within the window: prefix_offset ({self.prefix_offset}) <= read_offset ({self.read_offset})"
                f" <= {len(self.prev_tokens)} prev_tokens",
            )
        if sum(self.output_chunk_lens) != len(self.output_token_ids):
            raise field_error(
                "output_chunk_lens", f"output_chunk_lens must sum to the number of output_token_ids ({len(self.output_token_ids)})"
            )
        return self


class GenerateChunkChoice(Wire):
    index: Natural
    token_ids: list[TokenId] | None = None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason = None

    @model_validator(mode="after")
    def _one_entry_per_id(self) -> "GenerateChunkChoice":
        check_entries(self.logprobs, self.token_ids)
        return self


class GenerateChunk(Wire):
    """Any payload of a generate stream, of Tandem's worker or of vLLM's."""

    request_id: RequestId | None = None
    created: Natural | None = None
    choices: list[GenerateChunkChoice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_token_ids: list[TokenId] | None = None
    error: ErrorInfo | None = None

    @model_validator(mode="after")
    def _one_choice(self) -> "GenerateChunk":
        if self.error is not None:
            raise field_error("error", f"the generate stream failed, there is nothing to derender: {self.error.message}")
        if len(self.choices) > 1:
            raise field_error(
                "choices", f"a chunk may hold one choice at most, since a state belongs to one choice (got {len(self.choices)})"
            )
        return self


class _DerenderRequest(Wire):
    """`profile` is the fingerprint that render answered, `parse_context` what it answered of the request, which then need not be
    here; `created` the time to answer with where the worker tells none."""

    model: str | None = None
    profile: Annotated[str, Field(max_length=128)] | None = None
    created: Natural | None = None


class _BatchRequest(_DerenderRequest):
    stream: Literal[False] = False


def _of_chat(context: ParseContext | None) -> ParseContext | None:
    if context is not None and context.completion:
        raise PydanticCustomError("parse_context", "is a completion's, not a chat's")
    return context


def _of_completion(context: ParseContext | None) -> ParseContext | None:
    if context is not None and not context.completion:
        raise PydanticCustomError("parse_context", "is a chat's, not a completion's")
    return context


class DerenderChatRequest(_BatchRequest):
    """A whole generate answer, to become a chat completion. `prompt_token_ids` beats the answer's own, even when empty."""

    generate_response: GenerateResponse
    prompt_tokens: Natural | None = None
    prompt_token_ids: list[TokenId] | None = None
    chat_request: ChatCompletionRequest | None = None
    parse_context: Annotated[ParseContext | None, AfterValidator(_of_chat)] = None

    @property
    def told(self) -> ParseContext | None:
        return _told(self.parse_context, self.chat_request)


class DerenderCompletionRequest(_BatchRequest):
    """One generate answer per prompt, to become one completion. Lists beside the answers are as long as they."""

    generate_responses: Annotated[list[GenerateResponse], Field(min_length=1)]
    prompt_tokens: list[Natural] | None = None
    prompt_token_ids: list[list[TokenId] | None] | None = None
    completion_request: CompletionRequest | None = None
    parse_context: Annotated[ParseContext | None, AfterValidator(_of_completion)] = None

    @property
    def told(self) -> ParseContext | None:
        return _told(self.parse_context, self.completion_request)

    @model_validator(mode="after")
    def _parallel(self) -> "DerenderCompletionRequest":
        for name, value in (("prompt_tokens", self.prompt_tokens), ("prompt_token_ids", self.prompt_token_ids)):
            if value is not None and len(value) != len(self.generate_responses):
                raise field_error(
                    name, f"{name} must be as long as generate_responses ({len(value)} for {len(self.generate_responses)})"
                )
        return self


class _StreamRequest(_DerenderRequest):
    """`replay`: the state is to hold the whole output too, so that a derender service without checkpoints can go on from it."""

    stream: Literal[True]
    replay: bool = False
    generate_chunk: GenerateChunk
    stream_state: DerenderStreamState | None = None
    prompt_tokens: Natural | None = None
    prompt_token_ids: list[TokenId] | None = None


class DerenderChatStreamRequest(_StreamRequest):
    chat_request: ChatCompletionRequest | None = None
    parse_context: Annotated[ParseContext | None, AfterValidator(_of_chat)] = None

    @property
    def told(self) -> ParseContext | None:
        return _told(self.parse_context, self.chat_request)


class DerenderCompletionStreamRequest(_StreamRequest):
    completion_request: CompletionRequest | None = None
    parse_context: Annotated[ParseContext | None, AfterValidator(_of_completion)] = None

    @property
    def told(self) -> ParseContext | None:
        return _told(self.parse_context, self.completion_request)


def _told(context: ParseContext | None, request: ChatCompletionRequest | CompletionRequest | None) -> ParseContext | None:
    """What is told of the original request, by itself where it is here too."""
    if request is None:
        return context
    return ParseContext.of_chat(request) if isinstance(request, ChatCompletionRequest) else ParseContext.of_completion(request)


class DerenderChatStreamResponse(Wire):
    chunk: ChatCompletionChunk
    stream_state: DerenderStreamState


class DerenderCompletionStreamResponse(Wire):
    chunk: CompletionChunk
    stream_state: DerenderStreamState


def body_shape(value: Any) -> str:
    """The tag of a body: which of an endpoint's two request types it is."""
    stream = value.get("stream") if isinstance(value, dict) else getattr(value, "stream", False)
    return "stream:true" if stream is True else "stream:false"
