"""A stream's chunks put together: the answer that a client gets who did not ask to stream, as derender's batch answer would be."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]

_ORDER = ("id", "object", "created", "model", "choices", "usage")
"""Of a whole answer's fields; the others come after these."""


def assemble(chunks: Iterable[JsonObject], object_name: str) -> JsonObject:
    """The whole answer of a chat or a completion. What is text or a list is joined, what comes once is kept.

    The chunks are of one request, and have been read to the end. Choices are in order of their index.
    """
    answer: JsonObject = dict.fromkeys(_ORDER)
    choices: dict[int, _Choice] = {}
    timed = 0
    for chunk in chunks:
        timed += chunk.get("timings") is not None
        for key, value in chunk.items():
            if key != "choices" and answer.get(key) is None:
                answer[key] = value
        for choice in chunk["choices"]:
            choices.setdefault(choice["index"], _Choice()).add(choice)
    answer["object"] = object_name
    answer["choices"] = [choices[index].whole() for index in sorted(choices)]
    if timed > 1:  # of several prompts, and none is the whole answer's
        del answer["timings"]
    return {key: value for key, value in answer.items() if value is not None}


@dataclass
class _Choice:
    """Grows by the choices of chunks; `message` by their deltas, where they have one."""

    fields: JsonObject = field(default_factory=dict)
    message: "_Message | None" = None

    def add(self, choice: JsonObject) -> None:
        for key, value in choice.items():
            if key in ("text", "token_ids") and self.fields.get(key) is not None:
                self.fields[key] = self.fields[key] + value if value else self.fields[key]
            elif key == "delta":
                self.fields["message"] = None
                self.message = self.message or _Message()
                self.message.add(value)
            elif key == "logprobs":
                self.fields[key] = _joined(self.fields.get(key), value)
            elif value is not None or key not in self.fields:
                self.fields[key] = value

    def whole(self) -> JsonObject:
        return self.fields if self.message is None else {**self.fields, "message": self.message.whole()}


@dataclass
class _Message:
    """`texts`: content, reasoning and what else is text, by field. `calls` by their index."""

    texts: dict[str, str] = field(default_factory=dict)
    calls: dict[int, JsonObject] = field(default_factory=dict)

    def add(self, delta: JsonObject) -> None:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    _extend(self.calls.setdefault(call["index"], {"id": "", "type": "function", "function": {}}), call)
            elif isinstance(value, str) and key != "role":
                self.texts[key] = self.texts.get(key, "") + value

    def whole(self) -> JsonObject:
        calls = [self.calls[index] for index in sorted(self.calls)]
        others = {key: text for key, text in self.texts.items() if key not in ("content", "refusal") and text}
        content = self.texts.get("content") or (None if others or calls else self.texts.get("content"))
        message = {"role": "assistant", "content": content, "refusal": self.texts.get("refusal"), **others}
        return {**message, "tool_calls": calls} if calls else message


def _extend(call: JsonObject, delta: JsonObject) -> None:
    call["id"] += delta.get("id") or ""
    new, function = delta.get("function") or {}, call["function"]
    for key in ("name", "arguments"):
        function[key] = function.get(key, "") + (new.get(key) or "")


def _joined(before: JsonObject | None, new: JsonObject | None) -> JsonObject | None:
    """Logprobs of both endpoints are objects of parallel lists."""
    if before is None or new is None:
        return new if before is None else before
    return {key: [*(before.get(key) or []), *(new.get(key) or [])] for key in new}
