"""What chat templates see beside the conversation: variables that the client sets."""

from typing import Any

from protocol.errors import BadRequest
from protocol.requests import ReasoningEffort

JsonObject = dict[str, Any]

_OWN_NAMES = frozenset({"messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"})
"""What templates see under these names comes from the request's own fields."""


def own_variables(given: JsonObject | None) -> JsonObject:
    """The client's `chat_template_kwargs`. Raises `BadRequest`."""
    for name in given or {}:
        if name in _OWN_NAMES:
            where = f"chat_template_kwargs.{name}"
            raise BadRequest(f"{where}: what templates see as {name} comes from the request's own fields", param=where)
    return given or {}


def effort_variable(effort: ReasoningEffort | None) -> JsonObject:
    """Under the name by which templates know it."""
    return {} if effort is None else {"reasoning_effort": effort}


def thinking_variables(wanted: bool) -> JsonObject:
    """Qwen's and GLM's templates know the one name, DeepSeek's and Granite's the other."""
    return {"enable_thinking": wanted, "thinking": wanted}
