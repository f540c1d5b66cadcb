"""OpenAI's `/v1/chat/completions`: requests, answers and stream chunks."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from protocol.base import Extensible, JsonObject, Maybe, Positive, TokenId, Wire
from protocol.errors import field_error
from protocol.generate import Timings
from protocol.logprobs import ChatLogprobs
from protocol.requests import GenerationRequest, ReasoningEffort
from protocol.tools import Tool, ToolCall, ToolCallDelta, ToolChoice
from protocol.usage import Usage


class ContentPart(Extensible):
    """One part of a message's content. Only `text` parts reach a text-only model; the others are refused by name."""

    type: Literal["text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url", "thinking"]
    text: str | None = None

    @model_validator(mode="after")
    def _has_text(self) -> "ContentPart":
        if self.type == "text" and self.text is None:
            raise field_error("text", "a text part needs text")
        return self


Content = str | list[ContentPart]


class _Message(Extensible):
    name: str | None = None


class SystemMessage(_Message):
    role: Literal["system"]
    content: Content


class DeveloperMessage(_Message):
    role: Literal["developer"]
    content: Content


class UserMessage(_Message):
    role: Literal["user"]
    content: Content


class HistoryFunctionCall(Extensible):
    """A call in history: `arguments` as the text that was sent, or as the object it spells."""

    name: str
    arguments: str | JsonObject | None = None


class HistoryToolCall(Extensible):
    id: str | None = None
    type: Literal["function"] = "function"
    function: HistoryFunctionCall


class AssistantMessage(_Message):
    """`reasoning_content` is the older name of `reasoning`; both are read. `token_ids`: the ids that were sampled for this message,
    the stopping one included, which the prompt then has in place of its text."""

    role: Literal["assistant"]
    content: Content | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[HistoryToolCall] | None = None
    token_ids: list[TokenId] | None = None


class ToolMessage(_Message):
    role: Literal["tool"]
    content: Content
    tool_call_id: str | None = None


class FunctionMessage(_Message):
    role: Literal["function"]
    content: str | None = None


def _role(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return f"role:{role}"


# The tags are spelled so that error paths show `messages.0.content`, not a branch's name.
ChatMessage = Annotated[
    Annotated[SystemMessage, Tag("role:system")]
    | Annotated[DeveloperMessage, Tag("role:developer")]
    | Annotated[UserMessage, Tag("role:user")]
    | Annotated[AssistantMessage, Tag("role:assistant")]
    | Annotated[ToolMessage, Tag("role:tool")]
    | Annotated[FunctionMessage, Tag("role:function")],
    Discriminator(
        _role,
        custom_error_type="unknown_role",
        custom_error_message="must be one of system, developer, user, assistant, tool, function",
        custom_error_context={"field": "role"},
    ),
]


class Prefix(Wire):
    """Ids that were rendered, or rendered and sampled, for the first `messages` messages of this request."""

    token_ids: Annotated[list[TokenId], Field(min_length=1)]
    messages: Positive


class ChatCompletionRequest(GenerationRequest):
    """`prefix` and messages' `token_ids` make the prompt go on from these very ids; with `history` "canonical" they are left aside,
    and the template writes everything anew. `return_token_sources` asks for `message_indices` and `sampled_mask`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool = True
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[JsonObject] | None = None
    chat_template: str | None = None
    chat_template_kwargs: JsonObject | None = None
    prefix: Prefix | None = None
    history: Literal["extend", "canonical"] = "extend"
    return_token_sources: bool = False

    @model_validator(mode="after")
    def _check(self) -> "ChatCompletionRequest":
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "needs stream: true")
        if self.top_logprobs and not self.logprobs:
            raise field_error("top_logprobs", "needs logprobs: true")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise field_error("max_tokens", "give max_completion_tokens or max_tokens, not both")
        if self.prefix is not None and self.prefix.messages > len(self.messages):
            raise field_error("prefix", f"covers {self.prefix.messages} messages of {len(self.messages)}")
        if self.continue_final_message and self.add_generation_prompt and "add_generation_prompt" in self.model_fields_set:
            raise field_error("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
        return self


class AssistantAnswer(Wire):
    """The message that a choice brings. `reasoning_content` is `reasoning` once more under its older name, where the server is
    told to send that."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning: Maybe[str] = None
    reasoning_content: Maybe[str] = None
    tool_calls: Maybe[list[ToolCall]] = None


class ChatChoice(Wire):
    index: int
    message: AssistantAnswer
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Maybe[list[int]] = None


class ChatCompletion(Wire):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Maybe[Usage] = None
    system_fingerprint: Maybe[str] = None
    prompt_token_ids: Maybe[list[int]] = None
    timings: Maybe[Timings] = None


class Delta(Wire):
    """What a chunk adds to the message. `role` comes once."""

    role: Maybe[Literal["assistant"]] = None
    content: Maybe[str] = None
    reasoning: Maybe[str] = None
    reasoning_content: Maybe[str] = None
    tool_calls: Maybe[list[ToolCallDelta]] = None


class ChatChunkChoice(Wire):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: Maybe[list[int]] = None


class ChatCompletionChunk(Wire):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Maybe[Usage] = None
    system_fingerprint: Maybe[str] = None
    prompt_token_ids: Maybe[list[int]] = None
    timings: Maybe[Timings] = None
