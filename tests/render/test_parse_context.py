"""What render answers of the request is all that derender needs of it."""

import json
from typing import Any

import pytest

from derender_service.batch import derender_chat, derender_completion
from derender_service.stream import derender_chat_chunk
from protocol.derender import DerenderChatRequest, DerenderChatStreamRequest, DerenderCompletionRequest
from protocol.errors import TandemError
from render_service import anthropic
from service_kit.body import parse
from tests.derender.parsed import QWEN, chunk_of, derenderer, encode
from tests.render.rendering import render_chat, render_completion, renderer, say

JsonObject = dict[str, Any]
PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d" * 1000, "parameters": PARAMETERS}}
OUTPUT = '<think>\nwhy\n</think>\n\nSo END.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
ASKED: list[JsonObject] = [
    say("x", tools=[TOOL]),
    say("x", tools=[TOOL], tool_choice="none", include_reasoning=False),
    say("x", tools=[TOOL], stop=["END"], include_stop_str_in_output=True, return_token_ids=True),
    say("x", tools=[TOOL], parallel_tool_calls=False, min_tokens=5, stop="END", skip_special_tokens=False),
    {"messages": [{"role": "assistant", "content": "I say"}], "echo": True, "continue_final_message": True},
]


def answered(asked: JsonObject, **told: Any) -> JsonObject:
    """A whole answer and the first chunk of a stream, of an output that has a bit of everything."""
    own = derenderer(*QWEN)
    ids = encode("qwen3", OUTPUT)
    response = {"request_id": "r", "created": 1, "choices": [{"index": 0, "token_ids": ids, "finish_reason": "stop"}]}
    rendered = render_chat(renderer("qwen3"), **asked)
    shared = {"prompt_token_ids": rendered["token_ids"], **told}
    whole = DerenderChatRequest.model_validate({"generate_response": response, **shared})
    first = DerenderChatStreamRequest.model_validate({"stream": True, "generate_chunk": chunk_of(ids, "stop"), **shared})
    answers = (derender_chat(own, whole), derender_chat_chunk(own, first))
    return {"whole": json.loads(answers[0].wire()), "stream": json.loads(answers[1].wire())}


@pytest.mark.parametrize("asked", ASKED, ids=range(len(ASKED)))
def test_it_stands_in_for_the_request(asked: JsonObject) -> None:
    context = render_chat(renderer("qwen3"), **asked)["parse_context"]
    assert answered(asked, parse_context=context) == answered(asked, chat_request=asked)
    assert len(json.dumps(context)) < 1000


def test_of_other_shapes_too() -> None:
    tool = {"name": "f", "input_schema": PARAMETERS}
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": [tool], "stop_sequences": ["END"]}
    own = json.loads(anthropic.render(renderer("qwen3"), json.dumps(body).encode(), "id"))
    asked = say("x", max_tokens=9, tools=[TOOL], stop=["END"])
    assert answered(asked, parse_context=own["parse_context"]) == answered(asked, chat_request=asked)


def test_of_completions() -> None:
    asked = {"prompt": "Say", "echo": True, "stop": "END"}
    rendered = render_completion(renderer("qwen3"), **asked)[0]
    response = {
        "request_id": "r",
        "created": 1,
        "choices": [{"index": 0, "token_ids": encode("qwen3", " so END."), "finish_reason": "stop"}],
    }
    shared = {"generate_responses": [response], "prompt_token_ids": [rendered["token_ids"]]}
    own = derenderer("qwen3", None, None)
    one, other = (
        derender_completion(own, DerenderCompletionRequest.model_validate({**shared, **told})).wire()
        for told in ({"parse_context": rendered["parse_context"]}, {"completion_request": asked})
    )
    assert one == other
    assert json.loads(one)["choices"][0]["text"] == "Say so "


def test_the_wrong_endpoints_is_refused() -> None:
    chats, completions = render_chat(renderer("qwen3"), **say("x")), render_completion(renderer("qwen3"), prompt="x")[0]
    response = {"request_id": "r", "choices": [{"index": 0, "token_ids": [1], "finish_reason": "stop"}]}
    for model, body in (
        (DerenderChatRequest, {"generate_response": response, "parse_context": completions["parse_context"]}),
        (DerenderCompletionRequest, {"generate_responses": [response], "parse_context": chats["parse_context"]}),
    ):
        with pytest.raises(TandemError) as caught:
            parse(model, json.dumps(body).encode())  # type: ignore[type-var]
        assert caught.value.info.param == "parse_context"
