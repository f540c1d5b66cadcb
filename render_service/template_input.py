"""From a request's messages to what the chat template reads, after the template's habits."""

import json
from collections.abc import Sequence
from typing import Any

from model_profile.template_habits import TemplateHabits
from protocol.chat import AssistantMessage, ChatMessage, ContentPart, HistoryToolCall
from protocol.errors import BadRequest

JsonObject = dict[str, Any]


def for_template(messages: Sequence[ChatMessage], habits: TemplateHabits) -> list[JsonObject]:
    """Plain values, fields that no API lists included. Raises `BadRequest` that names `messages.<i>…`."""
    return [_message(message, habits, f"messages.{index}") for index, message in enumerate(messages)]


def _message(message: ChatMessage, habits: TemplateHabits, where: str) -> JsonObject:
    # Templates often test whether a key is there, so a key that says null is left out. (Content is set below in any case.)
    out: JsonObject = message.model_dump(exclude_unset=True, exclude_none=True, exclude={"content", "tool_calls", "token_ids"})
    calls: list[HistoryToolCall] = []
    if message.role == "developer" and not habits.developer_role:
        out["role"] = "system"
    if isinstance(message, AssistantMessage):
        calls = message.tool_calls or []
        if calls:
            out["tool_calls"] = [_call(call, habits, f"{where}.tool_calls.{index}") for index, call in enumerate(calls)]
    content = message.content
    if content is None and isinstance(message, AssistantMessage):
        content = message.refusal
    out["content"] = (None if calls and habits.null_content else "") if content is None else _content(content, habits, where)
    return out


def texts(content: str | list[ContentPart] | None, where: str) -> list[str]:
    """The texts of a content, one for each part. Raises `BadRequest` for a part that is no text."""
    if content is None or isinstance(content, str):
        return [content or ""]
    return [_text(part, f"{where}.content.{index}") for index, part in enumerate(content)]


def text_size(message: ChatMessage) -> int:
    """Bytes of the message's own text, at least: parts that are no text, and calls, are not counted."""
    content = message.content
    parts = [content] if isinstance(content, str) else [part.text for part in content or ()]
    return sum(len(text) for text in parts if text)


def arguments_text(arguments: str | JsonObject | None, where: str) -> str:
    """A call's arguments as the text that the model wrote. Raises `BadRequest` for text that is no JSON object."""
    if not isinstance(arguments, str):
        return json.dumps(arguments or {}, ensure_ascii=False)
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest(f"{where}: must be a JSON object, as text", param=where)
    return arguments if arguments.strip() else "{}"


def _content(content: str | list[ContentPart], habits: TemplateHabits, where: str) -> str | list[JsonObject]:
    if isinstance(content, str):
        wrap = habits.content_parts and not habits.content_text
        return [{"type": "text", "text": content}] if wrap else content
    texts = [_text(part, f"{where}.content.{index}") for index, part in enumerate(content)]
    return [{"type": "text", "text": text} for text in texts] if habits.content_parts else "\n".join(texts)


def _text(part: ContentPart, where: str) -> str:
    text = part.text
    if part.type == "refusal":
        text = (part.model_extra or {}).get("refusal", text)
    if part.type not in ("text", "refusal") or not isinstance(text, str):
        raise BadRequest(f"{where}: a part of type {part.type} is not supported; this model reads text", param=where)
    return text


def _call(call: HistoryToolCall, habits: TemplateHabits, where: str) -> JsonObject:
    out: JsonObject = call.model_dump(exclude_none=True)
    out["function"]["arguments"] = _arguments(call.function.arguments, habits, f"{where}.function.arguments")
    return out


def _arguments(arguments: str | JsonObject | None, habits: TemplateHabits, where: str) -> str | JsonObject:
    """An object for templates that serialise it, text for those that concatenate it."""
    if not habits.argument_objects:
        return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    if not isinstance(arguments, str):
        return arguments or {}
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if habits.argument_text:
        return arguments
    raise BadRequest(f"{where}: must be a JSON object, as text; the model's chat template cannot show anything else", param=where)
