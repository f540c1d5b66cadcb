"""Anthropic's requests: what a conversation's blocks become, and what is refused, each by its own name."""

from typing import Any

import pytest

from model_profile import ChatTemplate
from protocol.errors import BadRequest
from tests.render.rendering import render_chat, render_messages, renderer

USER = {"role": "user", "content": "go"}
TEXT = {"type": "text", "text": "t"}
CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "ok"}
CALLED = [USER, {"role": "assistant", "content": [CALL]}]
TOOL = {"name": "f", "description": "It does.", "input_schema": {"type": "object"}}


def ids(messages: list[dict[str, Any]], family: str = "qwen3", **request: Any) -> list[int]:
    found: list[int] = render_messages(renderer(family), messages=messages, max_tokens=5, **request)["token_ids"]
    return found


def chat_ids(messages: list[dict[str, Any]], family: str = "qwen3", **request: Any) -> list[int]:
    found: list[int] = render_chat(renderer(family), messages=messages, **request)["token_ids"]
    return found


def refused(**request: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        render_messages(renderer("qwen3"), **{"messages": [USER], "max_tokens": 5, **request})
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value


def test_sampling() -> None:
    answer = render_messages(
        renderer("smollm2"), messages=[USER], max_tokens=5, temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["x"], seed=4
    )
    params = answer["sampling_params"]
    assert [params[name] for name in ("max_tokens", "temperature", "top_p", "top_k", "seed")] == [5, 0.5, 0.9, 3, 4]
    assert "stop" not in params


def test_what_does_not_bear_on_the_answer_is_ignored() -> None:
    beside = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "context_management": {"edits": []},
        "mcp_servers": [],
        "new": 1,
    }
    assert ids([USER], **beside) == ids([USER])


def test_streams_tell_the_usage() -> None:
    render = renderer("tiny")
    assert "stream_options" not in render_messages(render, messages=[USER], max_tokens=5)
    streamed = render_messages(render, messages=[USER], max_tokens=5, stream=True)
    assert streamed["stream_options"]["include_usage"] is True


def test_system_blocks_are_parts_and_an_empty_system_is_none() -> None:
    two = [TEXT, {"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]
    assert ids([USER], system=two) == chat_ids([{"role": "system", "content": [TEXT, {"type": "text", "text": "u"}]}, USER])
    assert ids([USER], system="") == ids([USER], system=[]) == ids([USER])


def test_instructions_in_the_course_of_a_conversation() -> None:
    system = {"role": "system", "content": "now"}
    assert ids([USER, system]) == chat_ids([USER, system])


def test_results_come_before_what_the_user_says_in_their_order() -> None:
    other = {**CALL, "id": "d"}
    said = {"type": "text", "text": "and?"}
    called = [USER, {"role": "assistant", "content": [CALL, other]}]
    results = [said, {**RESULT, "tool_use_id": "d", "content": [{"type": "text", "text": "second"}]}, RESULT]
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}} for call_id in ("c", "d")]
    assert ids([*called, {"role": "user", "content": results}]) == chat_ids(
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "d", "content": "second"},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            {"role": "user", "content": "and?"},
        ]
    )


def test_a_result_may_have_no_content() -> None:
    without = {"type": "tool_result", "tool_use_id": "c"}
    empty = {**RESULT, "content": ""}
    assert ids([*CALLED, {"role": "user", "content": [without]}]) == ids([*CALLED, {"role": "user", "content": [empty]}])


def test_templates_may_read_that_a_result_is_an_error() -> None:
    template = "{% for m in messages %}{{ m.role }}{{ '!' if m.is_error }} {% endfor %}"
    render = renderer("qwen3", chat_template=ChatTemplate(template))

    def shown(**field: Any) -> str:
        messages = [*CALLED, {"role": "user", "content": [{**RESULT, **field}]}]
        answer = render_messages(render, messages=messages, max_tokens=5)
        return render.profile.tokenizer.decode(answer["token_ids"])

    assert shown(is_error=True) == "user assistant tool! "
    assert shown(is_error=False) == shown() == "user assistant tool "


def test_thoughts_are_joined() -> None:
    thoughts = [{"type": "thinking", "thinking": text} for text in ("hm", "so")]
    answer = {"role": "assistant", "content": [thoughts[0], TEXT, thoughts[1], CALL]}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    in_chat = {"role": "assistant", "content": "t", "reasoning": "hm\nso", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    assert ids([USER, answer, {"role": "user", "content": [RESULT]}]) == chat_ids([USER, in_chat, result])


def test_redacted_thinking_is_dropped() -> None:
    redacted = {"type": "redacted_thinking", "data": "abc"}
    with_it = [USER, {"role": "assistant", "content": [redacted, TEXT]}, USER]
    assert ids(with_it) == ids([USER, {"role": "assistant", "content": [TEXT]}, USER])


@pytest.mark.parametrize("family", ["smollm2", "qwen3", "gptoss"])
@pytest.mark.parametrize("content", ["So far", [{"type": "text", "text": "So far"}]])
def test_a_last_message_of_the_assistant_is_continued(family: str, content: Any) -> None:
    begun = [USER, {"role": "assistant", "content": content}]
    right = [USER, {"role": "assistant", "content": "So far"}]
    assert ids(begun, family) == chat_ids(right, family, continue_final_message=True, add_generation_prompt=False)


def test_a_last_message_without_content_is_none() -> None:
    for nothing in ("", []):
        assert ids([USER, {"role": "assistant", "content": nothing}]) == ids([USER])


def test_a_message_without_content_elsewhere_stays() -> None:
    empty = {"role": "assistant", "content": ""}
    assert ids([USER, {**empty, "content": []}, USER]) == chat_ids([USER, empty, USER])


@pytest.mark.parametrize(
    ("content", "at"),
    [([CALL], 0), ([TEXT, CALL, TEXT], 1), ([TEXT, {"type": "thinking", "thinking": "x"}], 1)],
)
def test_only_text_is_continued(content: list[dict[str, Any]], at: int) -> None:
    assert refused(messages=[USER, {"role": "assistant", "content": content}]).param == f"messages.1.content.{at}"


def test_harmony_has_no_text_to_continue_in_thoughts() -> None:
    begun = [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": ""}]}]
    with pytest.raises(BadRequest) as caught:
        ids(begun, "gptoss")
    assert caught.value.param == "messages.1"


@pytest.mark.parametrize(
    ("thinking", "variable"),
    [({"type": "disabled"}, False), ({"type": "adaptive"}, True), ({"type": "enabled"}, True)],
)
def test_thinking_is_switched_by_the_templates_variable(thinking: dict[str, Any], variable: bool) -> None:
    assert ids([USER], thinking=thinking) == chat_ids([USER], chat_template_kwargs={"enable_thinking": variable})
    assert ids([USER], thinking=thinking, chat_template_kwargs={"enable_thinking": not variable}) == chat_ids(
        [USER], chat_template_kwargs={"enable_thinking": not variable}
    )


def test_templates_find_thinking_under_either_name() -> None:
    render = renderer("qwen3", chat_template=ChatTemplate("{{ enable_thinking }} {{ thinking }}"))
    answer = render_messages(render, messages=[USER], max_tokens=5, thinking={"type": "disabled"})
    assert render.profile.tokenizer.decode(answer["token_ids"]) == "False False"


def test_thinking_off_differs_from_on() -> None:
    assert ids([USER], thinking={"type": "disabled"}) != ids([USER], thinking={"type": "adaptive"})


def test_effort_is_a_variable_of_the_prompt() -> None:
    effort = {"effort": "high"}
    assert ids([USER], "gptoss", output_config=effort) == chat_ids([USER], "gptoss", reasoning_effort="high")
    with pytest.raises(BadRequest, match=r"^output_config\.effort: harmony knows low") as caught:
        ids([USER], "gptoss", output_config={"effort": "max"})
    assert caught.value.param == "output_config.effort"


SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"messages": [5]}, "messages.0"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [TEXT, {"type": "text", "text": 5}]}]}, "messages.0.content.1.text"),
        ({"messages": [{"role": "user", "content": [TEXT, {"type": "text"}]}]}, "messages.0.content.1.text"),
        ({"messages": [{"role": "user", "content": [TEXT, {"text": "x"}]}]}, "messages.0.content.1.type"),
        ({"messages": [USER, {"role": "assistant", "content": [{**CALL, "input": "x"}]}]}, "messages.1.content.0.input"),
        ({"messages": [{"role": "user", "content": [{**RESULT, "content": [5]}]}]}, "messages.0.content.0.content.0"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [{"role": "user", "content": [TEXT, RESULT]}, CALLED[1]]}, "messages.0.content.1.tool_use_id"),
        ({"system": [{"type": "text", "text": None}]}, "system.0.text"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences.1"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [{**TOOL, "name": ""}]}, "tools.0.name"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_format": SCHEMA, "output_config": {"format": SCHEMA}}, "output_format"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"thinking_token_budget": 5}, "thinking_token_budget"),
        ({"min_tokens": 6}, "min_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
    ],
)
def test_what_is_wrong_is_named(request_: dict[str, Any], param: str) -> None:
    assert refused(**request_).param == param


@pytest.mark.parametrize("kind", ["image", "document", "search_result", "server_tool_use", "container_upload"])
def test_blocks_that_are_not_text_are_refused_by_name(kind: str) -> None:
    block = {"type": kind, "source": {}}
    for content, path in (([TEXT, block], "1"), ([{**RESULT, "content": [block]}], "0.content.0")):
        error = refused(messages=[*CALLED, {"role": "user", "content": content}])
        assert error.param == f"messages.2.content.{path}.type"
        assert f"{kind!r} is not supported" in error.message


@pytest.mark.parametrize("kind", ["web_search_20250305", "bash_20250124", "mcp_toolset"])
def test_tools_of_the_server_are_refused_by_name(kind: str) -> None:
    error = refused(tools=[TOOL, {"type": kind, "name": "x"}])
    assert (error.param, f"{kind!r} is not supported" in error.message) == ("tools.1.type", True)


def test_tools_of_the_client_are_functions() -> None:
    function = {"name": "f", "description": "It does.", "parameters": {"type": "object"}, "strict": True}
    right = chat_ids([USER], tools=[{"type": "function", "function": function}])
    assert ids([USER], tools=[{"type": "custom", **TOOL, "strict": True, "defer_loading": False}]) == right
    assert ids([USER], tools=[{"type": None, **TOOL, "strict": True}]) == right


@pytest.mark.parametrize(
    ("choice", "in_chat"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tool_choice_is_the_chats(choice: dict[str, Any], in_chat: Any) -> None:
    function = {"name": "f", "description": "It does.", "parameters": {"type": "object"}}
    right = outcome(render_chat, tools=[{"type": "function", "function": function}], tool_choice=in_chat)
    assert outcome(render_messages, tools=[TOOL], tool_choice=choice) == right


def test_an_output_format_is_the_chats() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}}
    right = outcome(render_chat, response_format=wanted)
    for name, request in (
        ("output_format", {"output_format": SCHEMA}),
        ("output_config.format", {"output_config": {"format": SCHEMA}}),
    ):
        found = outcome(render_messages, **request)
        assert found == (right.replace("response_format", name) if isinstance(right, str) else right)


def outcome(render: Any, **request: Any) -> Any:
    """What is chosen of the tokens, or what is wrong."""
    try:
        return render(renderer("qwen3"), messages=[USER], max_tokens=5, **request)["sampling_params"]
    except BadRequest as error:
        return error.message
