"""Pieces of a conversation, made of what other APIs than OpenAI's chats have for them."""

from collections.abc import Sequence
from typing import Any

from protocol.chat import AssistantMessage, Content, ContentPart, HistoryFunctionCall, HistoryToolCall
from protocol.tools import NamedFunction, NamedToolChoice, Tool

JsonObject = dict[str, Any]


def content(texts: Sequence[str]) -> Content:
    """A text that is alone is no list of parts: every template reads that."""
    if len(texts) > 1:
        return [ContentPart(type="text", text=text) for text in texts]
    return texts[0] if texts else ""


def assistant(reasoning: Sequence[str], texts: Sequence[str], calls: Sequence[HistoryToolCall]) -> AssistantMessage:
    """What the assistant thought, said and called before it was someone else's turn, as the one message that templates expect."""
    return AssistantMessage(
        role="assistant",
        content=content(texts) if texts else None,
        reasoning="\n".join(reasoning) if reasoning else None,
        tool_calls=list(calls) or None,
    )


def call(call_id: str, name: str, arguments: str | JsonObject) -> HistoryToolCall:
    return HistoryToolCall(id=call_id, type="function", function=HistoryFunctionCall(name=name, arguments=arguments))


def function_tool(name: str, description: str | None, parameters: JsonObject | None, strict: bool | None) -> JsonObject:
    """In the order of keys that models were trained on; what was not given is not there."""
    fields = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in fields.items() if value is not None}}


def functions(tools: Sequence[JsonObject] | None) -> list[Tool]:
    """What `function_tool` made, as wire types."""
    return [Tool.model_validate(tool) for tool in tools or ()]


def named(name: str) -> NamedToolChoice:
    return NamedToolChoice(function=NamedFunction(name=name))


def json_schema(name: str, schema: JsonObject, **more: Any) -> JsonObject:
    """A chat request's `response_format`; what is None is left out."""
    given = {key: value for key, value in more.items() if value is not None}
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **given}}
