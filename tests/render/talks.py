"""Conversations, and each of them as a request of all three shapes."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """By the user, in one or several texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: JsonObject
    result: tuple[str, ...]


@dataclass(frozen=True)
class Answered:
    """By the assistant; the calls have their results."""

    reasoning: str | None
    texts: tuple[str, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Talk:
    system: str | None
    tools: tuple[JsonObject, ...]
    turns: tuple[Said | Answered, ...]


words = st.text(min_size=1, max_size=20) | st.sampled_from(["<|im_end|>", "<|end|>", "</think>", " \n", "日本 👩", '{"a": 1}'])
several = st.lists(words, min_size=1, max_size=2).map(tuple)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(["f", "get_weather", "a-b"])
schemas = st.sampled_from(
    [{"type": "object", "properties": {}}, {"required": ["city"], "type": "object", "properties": {"city": {"type": "string"}}}]
)
tools = st.builds(
    lambda name, described, parameters: {"name": name, **described, "parameters": parameters},
    names,
    st.just({}) | words.map(lambda text: {"description": text}),
    schemas,
)


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Ends with the user's word or with results; an answer says, thinks or calls something."""
    turns: list[Said | Answered] = []
    for number in range(draw(st.integers(1, 3))):
        turns.append(Said(draw(several)))
        calls = tuple(
            Call(f"call_{number}_{place}", draw(names), draw(st.dictionaries(words, values, max_size=2)), draw(several))
            for place in range(draw(st.integers(0, 2)))
        )
        turns.append(Answered(draw(st.none() | words), draw(several if not calls else st.just(()) | several), calls))
    if draw(st.booleans()) or not turns[-1].calls:  # type: ignore[union-attr]
        turns.append(Said(draw(several)))
    return Talk(draw(st.none() | words), tuple(draw(st.lists(tools, max_size=2))), tuple(turns))


def as_chat(talk: Talk) -> JsonObject:
    def content(texts: tuple[str, ...]) -> Any:
        return [{"type": "text", "text": text} for text in texts] if len(texts) > 1 else texts[0]

    messages: list[JsonObject] = [] if talk.system is None else [{"role": "system", "content": talk.system}]
    for turn in talk.turns:
        if isinstance(turn, Said):
            messages.append({"role": "user", "content": content(turn.texts)})
            continue
        message: JsonObject = {"role": "assistant", "content": content(turn.texts) if turn.texts else None}
        if turn.reasoning is not None:
            message["reasoning"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments)}}
                for call in turn.calls
            ]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": content(call.result)} for call in turn.calls]
    request: JsonObject = {"messages": messages}
    if talk.tools:
        request["tools"] = [{"type": "function", "function": tool} for tool in talk.tools]
    return request


def as_messages(talk: Talk, *, plain: bool, joined: bool) -> JsonObject:
    """`plain`: a single text is no block. `joined`: results and what the user says next are one message."""

    def content(texts: tuple[str, ...]) -> Any:
        return texts[0] if plain and len(texts) == 1 else [{"type": "text", "text": text} for text in texts]

    messages: list[JsonObject] = []
    for turn in talk.turns:
        if isinstance(turn, Said):
            last = messages[-1] if messages else {"role": ""}
            if joined and last["role"] == "user":
                last["content"] = [*last["content"], *({"type": "text", "text": text} for text in turn.texts)]
            else:
                messages.append({"role": "user", "content": content(turn.texts)})
            continue
        blocks: list[JsonObject] = []
        if turn.reasoning is not None:
            blocks = [
                {"type": "thinking", "thinking": turn.reasoning, "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
            ]
        blocks += [{"type": "text", "text": text} for text in turn.texts]
        blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in turn.calls]
        messages.append({"role": "assistant", "content": blocks})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": content(call.result)} for call in turn.calls]
        if results:
            messages.append({"role": "user", "content": results})
    request: JsonObject = {"messages": messages}
    if talk.system is not None:
        request["system"] = content((talk.system,))
    if talk.tools:
        request["tools"] = [
            {
                "input_schema": tool["parameters"],
                **{key: tool[key] for key in ("description", "name") if key in tool},
                "cache_control": {"type": "ephemeral"},
            }
            for tool in talk.tools
        ]
    return request


def as_responses(talk: Talk, *, plain: bool, instructions: bool) -> JsonObject:
    """`plain`: messages with one text, and no type. `instructions`: the system's word is a field of the request."""

    def message(role: str, texts: tuple[str, ...]) -> JsonObject:
        if plain and len(texts) == 1:
            return {"role": role, "content": texts[0]}
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}

    items = [] if talk.system is None or instructions else [message("system", (talk.system,))]
    for turn in talk.turns:
        if isinstance(turn, Said):
            items.append(message("user", turn.texts))
            continue
        if turn.reasoning is not None:
            text = {"type": "summary_text" if plain else "reasoning_text", "text": turn.reasoning}
            items.append({"type": "reasoning", "id": "rs", "summary": [], ("summary" if plain else "content"): [text]})
        items += [message("assistant", turn.texts)] if turn.texts else []
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _json(call.arguments)}
            for call in turn.calls
        ]
        for call in turn.calls:
            output: Any = [{"type": "input_text", "text": text} for text in call.result]
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": call.id,
                    "output": call.result[0] if plain and len(call.result) == 1 else output,
                }
            )
    request: JsonObject = {"input": items}
    if talk.system is not None and instructions:
        request["instructions"] = talk.system
    if talk.tools:
        request["tools"] = [{"type": "function", "parameters": tool["parameters"], "strict": None, **tool} for tool in talk.tools]
    return request


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
