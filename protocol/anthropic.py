"""Anthropic's `/v1/messages`: requests."""

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from protocol.base import Extensible, JsonObject, Positive, Wire
from protocol.errors import field_error
from protocol.requests import CommonRequest
from protocol.sampling import StopStrings
from protocol.tools import FunctionName
from protocol.unions import ToldBy

Id = Annotated[str, Field(min_length=1, max_length=256)]


class TextBlock(Wire):
    type: Literal["text"]
    text: str


class ThinkingBlock(Wire):
    """`signature` is not looked at: it is for the server that gave it."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Wire):
    """Has no text that a model could read."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(Wire):
    type: Literal["tool_use"]
    id: Id
    name: FunctionName
    input: JsonObject


_Text = Annotated[Annotated[TextBlock, Tag("type:text")], ToldBy("type", ("text",))]
TextContent = str | list[_Text]


class ToolResultBlock(Wire):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: TextContent | None = None
    is_error: bool | None = None


UserBlock = Annotated[
    Annotated[TextBlock, Tag("type:text")] | Annotated[ToolResultBlock, Tag("type:tool_result")],
    ToldBy("type", ("text", "tool_result")),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, Tag("type:text")]
    | Annotated[ThinkingBlock, Tag("type:thinking")]
    | Annotated[RedactedThinkingBlock, Tag("type:redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("type:tool_use")],
    ToldBy("type", ("text", "thinking", "redacted_thinking", "tool_use")),
]


class SystemTurn(Wire):
    """Instructions in the course of a conversation, as some clients send them."""

    role: Literal["system"]
    content: TextContent


class UserTurn(Wire):
    role: Literal["user"]
    content: str | Annotated[list[UserBlock], Field(min_length=1)]


class AssistantTurn(Extensible):
    role: Literal["assistant"]
    content: str | list[AssistantBlock]


AnthropicMessage = Annotated[
    Annotated[UserTurn, Tag("role:user")]
    | Annotated[AssistantTurn, Tag("role:assistant")]
    | Annotated[SystemTurn, Tag("role:system")],
    ToldBy("role", ("user", "assistant", "system")),
]


class ClientTool(Wire):
    """A tool that the client runs. `input_schema` is a JSON schema."""

    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = None
    input_schema: JsonObject
    strict: bool | None = None


AnthropicTool = Annotated[Annotated[ClientTool, Tag("type:custom")], ToldBy("type", ("custom",), default="custom")]


class AnthropicToolChoice(Wire):
    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _named(self) -> "AnthropicToolChoice":
        if self.type == "tool" and self.name is None:
            raise field_error("name", "a tool choice of type tool needs the tool's name")
        return self


class Thinking(Extensible):
    type: Literal["enabled", "disabled", "adaptive"]


class OutputFormat(Wire):
    # `schema` is a method of pydantic's models.
    type: Literal["json_schema"]
    json_schema: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(Wire):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class MessagesRequest(CommonRequest):
    """Anthropic's fields, and vLLM's. `metadata`, `service_tier` and whatever else does not bear on the answer is ignored."""

    messages: Annotated[list[AnthropicMessage], Field(min_length=1)]
    max_tokens: Positive
    system: TextContent | None = None
    stop_sequences: StopStrings | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    chat_template_kwargs: JsonObject | None = None

    @model_validator(mode="after")
    def _check(self) -> "MessagesRequest":
        if self.output_format is not None and self.output_config is not None and self.output_config.format is not None:
            raise field_error("output_format", "give output_config.format or output_format, not both")
        return self
