"""What bears on the output and is not honoured is refused by name, in each request shape; what asks for nothing is welcome."""

import json
from typing import Any

import pytest

from protocol.errors import BadRequest
from render_service import refusals
from tests.render.rendering import ENDPOINTS, renderer, say

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions/render", "/v1/messages/render", "/v1/responses/render"
COMPLETIONS = "/v1/completions/render"
VALID: dict[str, dict[str, Any]] = {
    CHAT: say("x"),
    MESSAGES: say("x", max_tokens=5),
    RESPONSES: {"input": "x"},
    COMPLETIONS: {"prompt": "x"},
}
TABLES = {
    CHAT: refusals.CHAT,
    MESSAGES: refusals.MESSAGES,
    RESPONSES: refusals.RESPONSES,
    COMPLETIONS: refusals.COMPLETION,
}
EVERY = [(path, name) for path, table in TABLES.items() for name in table]


def post(path: str, **changes: Any) -> bytes:
    return ENDPOINTS[path](renderer("qwen3"), json.dumps({**VALID[path], **changes}).encode())


def refused(path: str, **changes: Any) -> str | None:
    with pytest.raises(BadRequest) as caught:
        post(path, **changes)
    return caught.value.param


@pytest.mark.parametrize(("path", "name"), EVERY)
def test_what_asks_for_something_is_refused_by_its_name(path: str, name: str) -> None:
    for value in ("something", ["something"], {"a": 1}, 7, True):
        if value not in TABLES[path][name].welcome or (value is True and name == "length_penalty"):
            assert refused(path, **{name: value}) == name


@pytest.mark.parametrize(("path", "name"), EVERY)
def test_what_asks_for_nothing_is_welcome(path: str, name: str) -> None:
    for value in TABLES[path][name].welcome:
        assert post(path, **{name: value}) == post(path)


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        *((CHAT, field, value) for field, value in {
            "web_search_options": {}, "best_of": 3, "logits_processors": ["x"], "guided_whitespace_pattern": " ",
            "verbosity": "low", "guided_decoding_backend": "x", "structural_tag": "x",
        }.items()),
        *((path, field, value) for path in (MESSAGES, RESPONSES) for field, value in {
            "prefix": {"token_ids": [1], "messages": 1}, "history": "canonical", "return_token_sources": True, "n": 2,
            "documents": [{"text": "d"}], "chat_template": "x", "reasoning_effort": "low", "echo": True,
            "response_format": {"type": "json_object"}, "include_reasoning": False, "max_completion_tokens": 7, "best_of": 2,
        }.items()),
        (MESSAGES, "stop", ["x"]),
        (MESSAGES, "max_output_tokens", 7),
        (RESPONSES, "stop_sequences", ["x"]),
        (RESPONSES, "max_tokens", 7),
        (RESPONSES, "previous_input_messages", [{"role": "user", "content": "x"}]),
        (CHAT, "stop_sequences", ["x"]),
        (CHAT, "max_output_tokens", 7),
    ],
)  # fmt: skip
def test_fields_that_were_once_ignored(path: str, field: str, value: Any) -> None:
    assert refused(path, **{field: value}) == field


def test_sampled_ids_in_shapes_that_do_not_go_on_from_them() -> None:
    user, said = {"role": "user", "content": "x"}, {"role": "assistant", "content": "a", "token_ids": [1, 2]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "token_ids": [1]}
    assert refused(MESSAGES, messages=[user, said, user]) == "messages.1.token_ids"
    assert refused(RESPONSES, input=[user, said, user]) == "input.1.token_ids"
    assert refused(RESPONSES, input=[user, {"type": "reasoning", "summary": [], "token_ids": [1]}, user]) == "input.1.token_ids"
    assert refused(RESPONSES, input=[user, call]) == "input.1.token_ids"
    nothing = {**said, "token_ids": None}
    assert post(MESSAGES, messages=[user, nothing, user])
    assert post(RESPONSES, input=[user, nothing, user])


def test_fields_that_do_not_bear_on_the_output_are_ignored() -> None:
    for path in VALID:
        assert post(path, metadata={"a": "b"}, prompt_cache_key="k", whatever=[1]) == post(path)
