"""What the tests of parsed derendering share: chat streams and whole answers through JSON bodies, for any formats."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from derender_service.batch import derender_chat
from derender_service.derenderer import Derenderer
from derender_service.parsers.parsing import parsing_for
from derender_service.stream import derender_chat_chunk
from protocol.derender import DerenderChatRequest, DerenderChatStreamRequest
from service_kit.models import ServedModel
from tests.tokenizers import profile

JsonObject = dict[str, Any]
STATE_LIMIT = 4096
REQUEST_ID = "req-1"
QWEN = ("qwen3", "qwen3", "hermes")
"""A tokenizer and its formats, for tests that any would serve."""


@cache
def derenderer(name: str, reasoning: str | None, tools: str | None, **options: Any) -> Derenderer:
    own = profile(name)
    parsing = parsing_for(own.tokenizer, reasoning, tools)
    return Derenderer.of(own, ServedModel("m", "m", 0), max_logprobs=5, parsing=parsing, **options)


def encode(name: str, text: str) -> list[int]:
    return list(profile(name).tokenizer.encode(text, add_special_tokens=False).ids)


def tool(name: str, **properties: Any) -> JsonObject:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


def chat_request(**fields: Any) -> JsonObject:
    return {"messages": [{"role": "user", "content": "Hi"}], **fields}


def chunk_of(ids: Sequence[int], finish: str | None = None, **fields: Any) -> JsonObject:
    choice = {"index": 0, "token_ids": list(ids), "finish_reason": finish, **fields}
    return {"request_id": REQUEST_ID, "created": 1_764_400_000, "choices": [choice]}


def step(own: Derenderer, body: JsonObject) -> JsonObject:
    """One chunk's answer, asked for twice: the bytes must be the same (L4)."""
    raw = json.dumps(body)
    answer, again = (derender_chat_chunk(own, DerenderChatStreamRequest.model_validate_json(raw)).wire() for _ in range(2))
    assert answer == again
    found: JsonObject = json.loads(answer)
    return found


def stream(
    own: Derenderer,
    chunks: Sequence[JsonObject],
    request: JsonObject,
    prompt: Sequence[int] = (),
    *,
    bounded: bool = True,
    **fields: Any,
) -> tuple[list[JsonObject], JsonObject]:
    """The chat chunks of a generate stream, and the last state. Request and prompt go with the first chunk alone."""
    answers, state = [], None
    for number, chunk in enumerate(chunks):
        body: JsonObject = {"stream": True, "model": "m", "generate_chunk": chunk, "stream_state": state, **fields}
        if number == 0:
            body |= {"chat_request": request, "prompt_token_ids": list(prompt)}
        answer = step(own, body)
        state = answer["stream_state"]
        assert not bounded or len(json.dumps(state)) < STATE_LIMIT
        answers.append(answer["chunk"])
    assert state is not None
    return answers, state


def whole(
    own: Derenderer, ids: Sequence[int], request: JsonObject, prompt: Sequence[int] = (), finish: str = "stop", **fields: Any
) -> JsonObject:
    """The batch answer's only choice, with the usage."""
    choice = {"index": 0, "token_ids": list(ids), "finish_reason": finish, **fields}
    response = {"request_id": REQUEST_ID, "created": 1_764_400_000, "choices": [choice]}
    body = {"model": "m", "generate_response": response, "chat_request": request, "prompt_token_ids": list(prompt)}
    answer = json.loads(derender_chat(own, DerenderChatRequest.model_validate(body)).wire())
    found: JsonObject = {**answer["choices"][0], "usage": answer["usage"]}
    return found


def assembled(chunks: Sequence[JsonObject]) -> JsonObject:
    """What a client has at the end, in the shape of a whole answer's message, with the rules of streams checked: one role, first;
    one finish, last; a call's first delta has id, type and name, later ones only arguments."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [choice["delta"] for choice in choices]
    assert [("role" in delta) for delta in deltas] == [True] + [False] * (len(deltas) - 1)
    finishes = [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
    assert finishes == [choices[-1]["finish_reason"]] or finishes == []
    calls: list[JsonObject] = []
    for delta in deltas:
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(calls):
                assert set(call) == {"index", "id", "type", "function"}
                assert call["type"] == "function"
                assert call["function"]["name"]
                calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"}
                assert set(call["function"]) == {"arguments"}
                assert call["index"] == len(calls) - 1
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    texts = {key: "".join(delta.get(key) or "" for delta in deltas) for key in ("content", "reasoning")}
    message: JsonObject = {"role": "assistant", "content": texts["content"] or None, "refusal": None}
    if texts["reasoning"]:
        message["reasoning"] = texts["reasoning"]
    if calls:
        message["tool_calls"] = calls
    if not texts["reasoning"] and not calls:
        message["content"] = texts["content"]
    return {"message": message, "finish_reason": choices[-1]["finish_reason"], "stop_reason": choices[-1]["stop_reason"]}


def cuts(ids: Sequence[int], *, sizes: Sequence[int] = (1, 2, 3, 5)) -> list[list[list[int]]]:
    """The ids in chunks of each size, and whole."""
    values = list(ids)
    return [[values]] + [[values[at : at + size] for at in range(0, len(values), size)] or [[]] for size in sizes]


def chunks_of(parts: Sequence[Sequence[int]], finish: str = "stop", *, apart: bool = False, **fields: Any) -> list[JsonObject]:
    """Generate chunks; the finish comes with the last ids, or `apart` in a chunk of its own."""
    if apart:
        return [*(chunk_of(part) for part in parts), chunk_of((), finish, **fields)]
    return [*(chunk_of(part) for part in parts[:-1]), chunk_of(parts[-1], finish, **fields)]
