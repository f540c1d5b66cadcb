"""Tools as the client offers them, and tool calls as the model makes them."""

from typing import Annotated, Literal

from pydantic import Field

from protocol.base import Extensible, JsonObject, Maybe, Wire

FunctionName = Annotated[str, Field(min_length=1, max_length=256)]


class Function(Extensible):
    """`parameters` is a JSON schema. Fields beyond these reach the chat template as they came."""

    name: FunctionName
    description: Maybe[str] = None
    parameters: Maybe[JsonObject] = None
    strict: Maybe[bool] = None


class Tool(Extensible):
    type: Literal["function"] = "function"
    function: Function


class NamedFunction(Wire):
    name: FunctionName


class NamedToolChoice(Wire):
    type: Literal["function"] = "function"
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class FunctionCall(Wire):
    """`arguments` is the model's own text."""

    name: str
    arguments: str


class ToolCall(Wire):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class FunctionCallDelta(Wire):
    name: Maybe[str] = None
    arguments: Maybe[str] = None


class ToolCallDelta(Wire):
    """The first delta of a call has `id`, `type` and the name; later ones `index` and further argument text."""

    index: int
    id: Maybe[str] = None
    type: Maybe[Literal["function"]] = None
    function: Maybe[FunctionCallDelta] = None
