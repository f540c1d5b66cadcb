"""Requests of the Responses API: what items become, and what is refused, each by its own name."""

from typing import Any

import pytest

from model_profile import ChatTemplate
from protocol.errors import BadRequest
from tests.render.rendering import render_chat, render_responses, renderer

USER = {"role": "user", "content": "go"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}', "id": "fc", "status": "completed"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t", "annotations": []}]}
TOOL = {"type": "function", "name": "f", "description": "It does.", "parameters": {"type": "object"}}
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CHAT_RESULT = {"role": "tool", "tool_call_id": "c", "content": "ok"}
LOGPROBS = ["message.output_text.logprobs"]


def ids(items: Any, family: str = "qwen3", **request: Any) -> list[int]:
    found: list[int] = render_responses(renderer(family), input=items, **request)["token_ids"]
    return found


def chat_ids(messages: list[dict[str, Any]], family: str = "qwen3", **request: Any) -> list[int]:
    found: list[int] = render_chat(renderer(family), messages=messages, **request)["token_ids"]
    return found


def refused(**request: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        render_responses(renderer("qwen3"), **{"input": "go", **request})
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value


def test_sampling() -> None:
    asked = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 4, "min_tokens": 2}
    params = render_responses(renderer("smollm2"), input="go", max_output_tokens=5, stop=["x"], **asked)["sampling_params"]
    assert {name: params[name] for name in asked} == asked
    assert params["max_tokens"] == 5
    assert "logprobs" not in params


def test_max_output_tokens_may_be_left_to_the_server() -> None:
    answer = render_responses(renderer("smollm2"), input="go")
    assert answer["sampling_params"]["max_tokens"] == 8192 - len(answer["token_ids"])


@pytest.mark.parametrize(("given", "right"), [({}, 0), ({"top_logprobs": 4}, 4)])
def test_logprobs_are_included_when_asked_for(given: dict[str, int], right: int) -> None:
    answer = render_responses(renderer("tiny"), input="go", include=[*LOGPROBS, "reasoning.encrypted_content"], **given)
    assert answer["sampling_params"]["logprobs"] == right


def test_what_does_not_bear_on_the_answer_is_ignored() -> None:
    beside = {
        "metadata": {"a": "b"}, "user": "u", "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k",
        "store": False, "background": False, "previous_response_id": None, "truncation": "auto",
        "parallel_tool_calls": False, "max_tool_calls": 3, "new": 1,
    }  # fmt: skip
    assert ids("go", **beside) == ids("go") == ids([USER])


def test_streams_tell_the_usage() -> None:
    streamed = render_responses(renderer("tiny"), input="go", stream=True, stream_options={"include_obfuscation": False})
    assert streamed["stream_options"]["include_usage"] is True


def test_the_requests_own_id_wins() -> None:
    assert render_responses(renderer("tiny"), input="go", request_id="mine")["request_id"] == "resp_mine"


def test_instructions_come_first() -> None:
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "d"}]}
    assert ids([developer, USER], "gptoss", instructions="s") == chat_ids(
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER], "gptoss"
    )


ANSWER = {"role": "assistant", "content": "t", "reasoning": "hm", "tool_calls": [CHAT_CALL]}


@pytest.mark.parametrize("family", ["qwen3", "gptoss"])
@pytest.mark.parametrize("items", [[THOUGHT, SAID, CALL], [SAID, THOUGHT, CALL], [CALL, THOUGHT, SAID]])
def test_what_the_assistant_did_in_a_row_is_one_message(family: str, items: list[dict[str, Any]]) -> None:
    assert ids([USER, *items, OUTPUT], family) == chat_ids([USER, ANSWER, CHAT_RESULT], family)


def test_each_round_of_calls_is_a_message() -> None:
    again = {**CALL, "call_id": "d"}
    chat_again = {"role": "assistant", "content": None, "tool_calls": [{**CHAT_CALL, "id": "d"}]}
    assert ids([USER, THOUGHT, SAID, CALL, OUTPUT, again, {**OUTPUT, "call_id": "d"}]) == chat_ids(
        [USER, ANSWER, CHAT_RESULT, chat_again, {**CHAT_RESULT, "tool_call_id": "d"}]
    )


def test_reasoning_is_its_text_else_its_summary_and_nothing_when_it_is_sealed() -> None:
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    both = {**THOUGHT, "summary": [{"type": "summary_text", "text": "other"}], "encrypted_content": "zz"}
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "zz"}
    plain = ids([USER, THOUGHT, CALL, OUTPUT])
    assert ids([USER, summary, CALL, OUTPUT]) == ids([USER, both, CALL, OUTPUT]) == plain
    assert ids([USER, sealed, CALL, OUTPUT]) == ids([USER, CALL, OUTPUT]) != plain
    assert ids([USER, sealed]) == ids([USER])


def test_all_that_was_thought_and_said_in_a_row_is_there_in_order() -> None:
    more = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in ("so", "yes")]}
    also = {"role": "assistant", "content": "u"}
    parts = [{"type": "text", "text": text} for text in ("t", "u")]
    answer = {**ANSWER, "reasoning": "hm\nso\nyes", "content": parts}
    assert ids([USER, THOUGHT, SAID, more, also, CALL, OUTPUT]) == chat_ids([USER, answer, CHAT_RESULT])


def test_roles_stay() -> None:
    shown = "{% for m in messages %}{% if m.role == 'developer' %}D{% else %}{{ m.role }}{% endif %} {% endfor %}"
    render = renderer("qwen3", chat_template=ChatTemplate(shown))
    items = [{"role": role, "content": "x"} for role in ("system", "developer", "user", "assistant")]
    assert render.profile.tokenizer.decode(render_responses(render, input=items)["token_ids"]) == "system D user assistant "


def test_a_refusal_is_what_the_assistant_said() -> None:
    no = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert ids([USER, no, USER]) == chat_ids([USER, {"role": "assistant", "content": "no"}, USER])


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_a_message_that_is_not_complete_is_continued(status: str) -> None:
    right = chat_ids([USER, {"role": "assistant", "content": "t"}], continue_final_message=True)
    assert ids([USER, {**SAID, "status": status}]) == right
    assert ids([USER, {**SAID, "status": "completed"}]) == ids([USER, SAID]) != right
    assert refused(input=[USER, CALL, {**SAID, "status": status}]).param == "input.2"


def test_effort_is_a_variable_of_the_prompt() -> None:
    assert ids("go", "gptoss", reasoning={"effort": "high", "summary": "auto"}) == chat_ids(
        [USER], "gptoss", reasoning_effort="high"
    )
    with pytest.raises(BadRequest) as caught:
        ids("go", "gptoss", reasoning={"effort": "xhigh"})
    assert caught.value.param == "reasoning.effort"


def test_template_variables() -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    assert ids("go", **off) == chat_ids([USER], **off) != ids("go")


@pytest.mark.parametrize("family", ["qwen3", "gptoss"])
@pytest.mark.parametrize("arguments", ['{"x": ', "[1]"])
def test_broken_arguments_are_named_where_they_stand_or_shown(family: str, arguments: str) -> None:
    items = [USER, SAID, {**CALL, "call_id": "b"}, {**CALL, "arguments": arguments}, OUTPUT]
    if family == "gptoss":
        with pytest.raises(BadRequest) as caught:
            ids(items, family)
        assert caught.value.param == "input.3.arguments"
        assert caught.value.message.startswith("input.3.arguments: ")
    else:
        shown = renderer(family).profile.tokenizer.decode(ids(items, family), skip_special_tokens=False)
        assert arguments in shown


FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [5]}, "input.0"),
        ({"input": [{"content": "x"}]}, "input.0.role"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role"),
        ({"input": [USER, {"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "input.1.content.0.text"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "output_text"}]}]},
            "input.0.content.1.text",
        ),
        ({"input": [{"role": "assistant", "content": [{"type": "refusal"}]}]}, "input.0.content.0.refusal"),
        ({"input": [{**CALL, "arguments": {}}]}, "input.0.arguments"),
        ({"input": [{**CALL, "call_id": ""}]}, "input.0.call_id"),
        ({"input": [USER, OUTPUT]}, "input.1.call_id"),
        ({"input": [OUTPUT, CALL]}, "input.0.call_id"),
        ({"input": [{**OUTPUT, "output": [{"type": "input_text"}]}]}, "input.0.output.0.text"),
        ({"input": [{"type": "reasoning", "content": [{"type": "reasoning_text"}]}]}, "input.0.content.0.text"),
        ({"instructions": 5}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 2**40}, "max_output_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "include": LOGPROBS}, "top_logprobs"),
        ({"truncation": "left"}, "truncation"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{"name": "f"}]}, "tools.0.type"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]}},
            "tool_choice.tools.0.name",
        ),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}}, "tool_choice.tools.0.type"),
        ({"text": {"format": {**FORMAT, "schema": None}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"min_tokens": 6, "max_output_tokens": 5}, "min_tokens"),
    ],
)
def test_what_is_wrong_is_named(request_: dict[str, Any], param: str) -> None:
    assert refused(**request_).param == param


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio"])
def test_parts_that_are_not_text_are_refused_by_name(kind: str) -> None:
    part = {"type": kind, "image_url": "data:,"}
    for items, path in (
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}, part]}], "input.0.content.1.type"),
        ([USER, CALL, {**OUTPUT, "output": [part]}], "input.2.output.0.type"),
    ):
        error = refused(input=items)
        assert (error.param, f"{kind!r} is not supported" in error.message) == (path, True)


@pytest.mark.parametrize("kind", ["item_reference", "web_search_call", "custom_tool_call", "mcp_approval_request", "compaction"])
def test_items_of_a_servers_own_are_refused_by_name(kind: str) -> None:
    error = refused(input=[USER, {"type": kind, "id": "x"}])
    assert (error.param, f"{kind!r} is not supported" in error.message) == ("input.1.type", True)


@pytest.mark.parametrize(
    "kind",
    ["web_search", "file_search", "computer_use_preview", "mcp", "code_interpreter", "image_generation", "custom", "local_shell"],
)
def test_hosted_tools_are_refused_by_name(kind: str) -> None:
    for request, param in (
        ({"tools": [TOOL, {"type": kind, "name": "x"}]}, "tools.1.type"),
        ({"tool_choice": {"type": kind}}, "tool_choice.type"),
    ):
        error = refused(**request)
        assert (error.param, f"{kind!r} is not supported" in error.message) == (param, True)


def chat_tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": function}


def test_tools_are_functions() -> None:
    full = chat_tool(name="f", description="It does.", parameters={"type": "object"}, strict=True)
    bare = chat_tool(name="g")
    nothing = {"type": "function", "name": "g", "description": None, "parameters": None, "strict": None}
    assert ids("go", tools=[{**TOOL, "strict": True}, nothing]) == chat_ids([USER], tools=[full, bare])
    assert ids("go", tools=[]) == ids("go")


def test_the_model_sees_the_allowed_tools_alone() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    other = {**TOOL, "name": "g"}
    assert ids("go", tools=[other, TOOL], tool_choice=choice) == ids("go", tools=[TOOL]) != ids("go", tools=[other, TOOL])


@pytest.mark.parametrize(
    ("choice", "in_chat"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}, "required"),
    ],
)
def test_tool_choice_is_the_chats(choice: Any, in_chat: Any) -> None:
    function = chat_tool(name="f", description="It does.", parameters={"type": "object"})
    right = outcome(render_chat, messages=[USER], tools=[function], tool_choice=in_chat)
    assert outcome(render_responses, input="go", tools=[TOOL], tool_choice=choice) == right


@pytest.mark.parametrize(
    ("wanted", "in_chat"),
    [
        ({"type": "text"}, {"type": "text"}),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {**FORMAT, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
        ),
    ],
)
def test_a_text_format_is_the_chats(wanted: Any, in_chat: Any) -> None:
    right = outcome(render_chat, messages=[USER], response_format=in_chat)
    found = outcome(render_responses, input="go", text={"format": wanted, "verbosity": "medium"})
    assert found == (right.replace("response_format", "text.format") if isinstance(right, str) else right)


def outcome(render: Any, **request: Any) -> Any:
    """What is chosen of the tokens, or what is wrong."""
    try:
        return render(renderer("qwen3"), **request)["sampling_params"]
    except BadRequest as error:
        return error.message
