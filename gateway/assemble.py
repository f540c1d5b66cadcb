"""A stream's chunks put together: the answer that a client gets who did not ask to stream, as derender's batch answer would be.

There may be as many as tokens, so each is added in a time of its own size: texts are joined at the end, lists grow where they are.
"""

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
    """Grows by the choices of chunks; `message` by their deltas, where they have one, `text` by a completion's."""

    fields: JsonObject = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    message: "_Message | None" = None

    def add(self, choice: JsonObject) -> None:
        for key, value in choice.items():
            if key == "text":
                self.fields[key] = None
                self.text += [value] if value else ()
            elif key == "token_ids":
                self.fields[key] = _longer(self.fields.get(key), value)
            elif key == "delta":
                self.fields["message"] = None
                self.message = self.message or _Message()
                self.message.add(value)
            elif key == "logprobs":
                self.fields[key] = _joined(self.fields.get(key), value)
            elif value is not None or key not in self.fields:
                self.fields[key] = value

    def whole(self) -> JsonObject:
        text = {"text": "".join(self.text)} if "text" in self.fields else {}
        message = {} if self.message is None else {"message": self.message.whole()}
        return {**self.fields, **text, **message}


@dataclass
class _Message:
    """`texts`: content, reasoning and what else is text, by field. `calls` by their index."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    calls: dict[int, "_Call"] = field(default_factory=dict)

    def add(self, delta: JsonObject) -> None:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    self.calls.setdefault(call["index"], _Call()).add(call)
            elif isinstance(value, str) and key != "role":
                self.texts.setdefault(key, []).append(value)

    def whole(self) -> JsonObject:
        calls = [self.calls[index].whole() for index in sorted(self.calls)]
        texts = {key: "".join(parts) for key, parts in self.texts.items()}
        others = {key: text for key, text in texts.items() if key not in ("content", "refusal") and text}
        content = texts.get("content") or (None if others or calls else texts.get("content"))
        message = {"role": "assistant", "content": content, "refusal": texts.get("refusal"), **others}
        return {**message, "tool_calls": calls} if calls else message


@dataclass
class _Call:
    id: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def add(self, delta: JsonObject) -> None:
        function = delta.get("function") or {}
        self.id.append(delta.get("id") or "")
        self.name.append(function.get("name") or "")
        self.arguments.append(function.get("arguments") or "")

    def whole(self) -> JsonObject:
        function = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        return {"id": "".join(self.id), "type": "function", "function": function}


def _joined(before: JsonObject | None, new: JsonObject | None) -> JsonObject | None:
    """Logprobs of both endpoints are objects of parallel lists."""
    if new is None:
        return before
    return (before or {}) | {key: _longer((before or {}).get(key), values) for key, values in new.items()}


def _longer(own: list[Any] | None, more: list[Any] | None) -> list[Any] | None:
    """`own`, which is no chunk's, with `more` behind it."""
    if own is None or more is None:
        return own if more is None else list(more)
    own += more
    return own
