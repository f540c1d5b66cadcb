"""OpenAI's `/v1/responses`: requests that bring their whole conversation (no server keeps one here)."""

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from protocol.base import Extensible, JsonObject, Positive, Wire
from protocol.errors import field_error
from protocol.requests import CommonRequest, ReasoningEffort
from protocol.sampling import Stop
from protocol.tools import FunctionName
from protocol.unions import ToldBy

CallId = Annotated[str, Field(min_length=1, max_length=256)]


class TextPart(Wire):
    type: Literal["input_text", "output_text"]
    text: str


class RefusalPart(Wire):
    type: Literal["refusal"]
    refusal: str


ItemPart = Annotated[
    Annotated[TextPart, Tag("type:input_text")]
    | Annotated[TextPart, Tag("type:output_text")]
    | Annotated[RefusalPart, Tag("type:refusal")],
    ToldBy("type", ("input_text", "output_text", "refusal")),
]
InputText = Annotated[Annotated[TextPart, Tag("type:input_text")], ToldBy("type", ("input_text",))]


class MessageItem(Extensible):
    """`status` says of the assistant's last message whether it is to be continued."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ItemPart]
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallItem(Extensible):
    """`arguments` is the model's own text."""

    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: str


class FunctionCallOutputItem(Wire):
    type: Literal["function_call_output"]
    call_id: CallId
    output: str | list[InputText]


class ReasoningText(Wire):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Extensible):
    """`encrypted_content` is for the server that gave it, and not looked at."""

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None


Item = Annotated[
    Annotated[MessageItem, Tag("type:message")]
    | Annotated[FunctionCallItem, Tag("type:function_call")]
    | Annotated[FunctionCallOutputItem, Tag("type:function_call_output")]
    | Annotated[ReasoningItem, Tag("type:reasoning")],
    ToldBy("type", ("message", "function_call", "function_call_output", "reasoning"), default="message"),
]


class FunctionTool(Wire):
    """`parameters` is a JSON schema."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


ResponsesTool = Annotated[Annotated[FunctionTool, Tag("type:function")], ToldBy("type", ("function",))]


class FunctionChoice(Wire):
    type: Literal["function"]
    name: FunctionName


class AllowedTools(Wire):
    """The model may call these of the request's tools and no others."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: list[Annotated[Annotated[FunctionChoice, Tag("type:function")], ToldBy("type", ("function",))]]


ResponsesToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[
        Annotated[FunctionChoice, Tag("type:function")] | Annotated[AllowedTools, Tag("type:allowed_tools")],
        ToldBy("type", ("function", "allowed_tools")),
    ]
)


class PlainFormat(Wire):
    type: Literal["text", "json_object"]


class JsonSchemaFormat(Wire):
    # `schema` is a method of pydantic's models.
    type: Literal["json_schema"]
    name: str
    json_schema: Annotated[JsonObject, Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class TextConfig(Wire):
    format: (
        Annotated[
            Annotated[PlainFormat, Tag("type:text")]
            | Annotated[PlainFormat, Tag("type:json_object")]
            | Annotated[JsonSchemaFormat, Tag("type:json_schema")],
            ToldBy("type", ("text", "json_object", "json_schema")),
        ]
        | None
    ) = None


class Reasoning(Wire):
    effort: ReasoningEffort | None = None


LOGPROBS = "message.output_text.logprobs"


class ResponsesRequest(CommonRequest):
    """OpenAI's fields, and vLLM's. `metadata`, `service_tier`, `safety_identifier`, `prompt_cache_key` and whatever else does not
    bear on the answer is ignored. `truncation`: no text is cut off, so a conversation that is too long is an error either way."""

    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: ResponsesToolChoice | None = None
    parallel_tool_calls: bool | None = True
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=2**31)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    stop: Stop | None = None
    chat_template_kwargs: JsonObject | None = None

    @model_validator(mode="after")
    def _check(self) -> "ResponsesRequest":
        if self.top_logprobs and LOGPROBS not in (self.include or ()):
            raise field_error("top_logprobs", f"needs include: {LOGPROBS}")
        return self
