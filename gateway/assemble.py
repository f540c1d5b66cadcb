"""A stream's chunks put together: the answer that a client gets who did not ask to stream."""

from collections.abc import Iterable
from typing import Any

JsonObject = dict[str, Any]


def assemble(chunks: Iterable[JsonObject], object_name: str) -> JsonObject:
    """The whole answer of a chat or a completion. What is text or a list is joined, what comes once is kept.

    The chunks are of one request, and have been read to the end. Choices are in order of their index.
    """
    answer: JsonObject = {}
    choices: dict[int, JsonObject] = {}
    for chunk in chunks:
        for key, value in chunk.items():
            if key != "choices" and value is not None:
                answer.setdefault(key, value)
        for choice in chunk["choices"]:
            _add(choices.setdefault(choice["index"], {}), choice)
    answer["object"] = object_name
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return answer


def _add(whole: JsonObject, choice: JsonObject) -> None:
    for key, value in choice.items():
        if key in ("text", "token_ids"):
            whole[key] = whole[key] + value if key in whole else value
        elif key == "delta":
            _add_delta(whole.setdefault("message", {"role": "assistant", "content": None, "refusal": None}), value)
        elif key == "logprobs":
            whole[key] = _joined(whole.get(key), value)
        elif value is not None or key not in whole:
            whole[key] = value


def _add_delta(message: JsonObject, delta: JsonObject) -> None:
    for key, value in delta.items():
        if key in ("content", "reasoning"):
            message[key] = (message.get(key) or "") + value
        elif key == "tool_calls":
            for call in value:
                _add_call(message.setdefault("tool_calls", []), call)


def _add_call(calls: list[JsonObject], delta: JsonObject) -> None:
    if delta["index"] == len(calls):
        calls.append({"id": delta["id"], "type": "function", "function": {"name": "", "arguments": ""}})
    function = calls[delta["index"]]["function"]
    for key, value in (delta.get("function") or {}).items():
        function[key] += value


def _joined(before: JsonObject | None, new: JsonObject | None) -> JsonObject | None:
    """Logprobs of both endpoints are objects of parallel lists."""
    if before is None or new is None:
        return new if before is None else before
    return {key: [*(before.get(key) or []), *(new.get(key) or [])] for key in new}
