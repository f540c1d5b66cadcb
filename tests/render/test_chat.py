"""Messages as templates expect them, and what the answer carries besides the ids."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import BadRequest, NotFound
from tests.render.rendering import render_chat, renderer, say
from tests.tokenizers import profile

texts = st.text(max_size=40)


@pytest.mark.parametrize("family", ["smollm2", "qwen3", "deepseek_v3", "llama3_1", "gemma3", "tiny"])
@settings(max_examples=40, deadline=None)
@given(turns=st.lists(texts, min_size=1, max_size=5), system=st.none() | texts)
def test_ids_are_those_of_the_rendered_text(family: str, turns: list[str], system: str | None) -> None:
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages += [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(turns)]
    model = profile(family)
    assert model.chat_template is not None
    text = model.chat_template.render(messages, add_generation_prompt=True, special_tokens=model.special_tokens)
    answer = render_chat(renderer(family), messages=messages, return_token_offsets=True)
    assert answer["token_ids"] == model.tokenizer.encode(text, add_special_tokens=False).ids
    assert len(answer["token_offsets"]) == len(answer["token_ids"])
    assert all(0 <= start <= end <= len(text) for start, end in answer["token_offsets"])


def shown(family: str, messages: list[dict[str, Any]], **request: Any) -> str:
    """The prompt's text."""
    render = renderer(family)
    return render.profile.tokenizer.decode(
        render_chat(render, messages=messages, **request)["token_ids"], skip_special_tokens=False
    )


def called(arguments: Any, content: Any = None) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "ok"}]},
    ]


@pytest.mark.parametrize("arguments", ['{"x": 1}', {"x": 1}])
@pytest.mark.parametrize("family", ["qwen3", "deepseek_v3"])
def test_arguments_as_text_or_object_are_one(family: str, arguments: Any) -> None:
    assert '{"x": 1}' in shown(family, called(arguments))


@pytest.mark.parametrize("arguments", [None, "", " ", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert '"arguments": {}' in shown("qwen3", called(arguments))


def test_missing_content_is_null_content() -> None:
    messages = called("{}")
    del messages[1]["content"]
    assert shown("deepseek_v3", messages) == shown("deepseek_v3", called("{}"))


@pytest.mark.parametrize("arguments", ['{"x": ', "[1]", "nope", "[" * 100_000, "1" * 5000])
def test_broken_arguments_are_shown_or_refused_never_dropped(arguments: str) -> None:
    assert arguments in shown("qwen3", called(arguments))
    strict = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endfor %}"
    # This template would print broken text as a JSON string: the model would see escapes that nobody wrote.
    with pytest.raises(BadRequest) as caught:
        render_chat(renderer("qwen3"), messages=called(arguments), chat_template=strict)
    assert caught.value.param == "messages.1.tool_calls.0.function.arguments"


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        render_chat(renderer("qwen3"), messages=called('{"x": "\\ud800"}'))


def test_extra_fields_of_messages_reach_the_template() -> None:
    template = "{{ messages[0].name }}|{{ messages[0].mood }}|{{ messages[0].content }}"
    request = {"messages": [{"role": "user", "content": "hi", "name": "Ann", "mood": {"is": "fine"}}], "chat_template": template}
    render = renderer("qwen3")
    assert render.profile.tokenizer.decode(render_chat(render, **request)["token_ids"]) == "Ann|{'is': 'fine'}|hi"


def test_a_refusal_is_what_the_assistant_said() -> None:
    part = {"type": "refusal", "refusal": "I would rather not."}
    for message in ({"content": [part]}, {"content": None, "refusal": "I would rather not."}):
        assert "I would rather not." in shown("qwen3", [{"role": "user", "content": "?"}, {"role": "assistant", **message}])


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url", "audio_url", "thinking"])
def test_parts_that_are_not_text_are_refused_by_name(kind: str) -> None:
    content = [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "data:,"}}]
    with pytest.raises(BadRequest, match=kind) as caught:
        render_chat(renderer("qwen3"), messages=[{"role": "user", "content": content}])
    assert caught.value.param == "messages.0.content.1"


def test_text_is_wrapped_for_templates_that_only_walk_parts() -> None:
    template = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    answer = render_chat(renderer("qwen3"), **say("hi", chat_template=template))
    assert profile("qwen3").tokenizer.decode(answer["token_ids"]) == "[hi]"


def test_template_variables() -> None:
    template = "{{ reasoning_effort }}|{{ mode }}|{{ documents[0].text }}|{{ bos_token }}|{{ tools | length }}"
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = say("x", chat_template=template, reasoning_effort="low", documents=[{"text": "d"}], tools=tools)
    answer = render_chat(renderer("llama3_1"), **request, chat_template_kwargs={"mode": 7})
    text = profile("llama3_1").tokenizer.decode(answer["token_ids"], skip_special_tokens=False)
    assert text == "low|7|d|<|begin_of_text|>|1"


def test_thinking_can_be_switched_off() -> None:
    assert shown("qwen3", say("x")["messages"], chat_template_kwargs={"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "continue_final_message"])
def test_template_variables_cannot_replace_the_requests_own_fields(name: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render_chat(renderer("qwen3"), **say("x", chat_template_kwargs={name: True}))
    assert caught.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize(
    ("request_", "param", "says"),
    [
        (say("x", chat_template="{% for %}"), "chat_template", "not valid Jinja"),
        (say("x", chat_template="{{ raise_exception('no') }}"), "messages", "refuses these messages: no"),
        (say("x", chat_template="{{ 1 / 0 }}"), "messages", "division"),
        (say("x", tool_choice="required"), "tool_choice", "no tools"),
        (say("x", max_tokens=5, max_completion_tokens=5), "max_tokens", "not both"),
        (
            {"messages": [{"role": "assistant", "content": ""}], "continue_final_message": True, "chat_template": "-"},
            "messages",
            "leaves",
        ),
    ],
)
def test_what_cannot_be_rendered(request_: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        render_chat(renderer("qwen3"), **request_)
    assert caught.value.param == param


def test_templates_of_requests_need_trust() -> None:
    with pytest.raises(BadRequest, match="--trust-request-chat-template") as caught:
        render_chat(renderer("qwen3", trust_templates=False), **say("x", chat_template="x"))
    assert caught.value.param == "chat_template"


def test_a_model_without_a_template() -> None:
    with pytest.raises(BadRequest, match="no chat template"):
        render_chat(renderer("qwen3", chat_template=None), **say("x"))


def test_the_answer_carries_what_the_worker_and_derender_need() -> None:
    request = say(
        "x",
        model="m",
        stream=True,
        stream_options={"include_usage": True},
        cache_salt="s",
        priority=-3,
        return_token_ids=True,
        kv_transfer_params={"a": 1},
        user="u",
        session_id="s",
    )
    answer = render_chat(renderer("smollm2"), **request)
    kept = ("model", "stream", "cache_salt", "priority", "return_token_ids", "kv_transfer_params")
    assert {key: answer[key] for key in kept} == {key: request[key] for key in kept}
    assert answer["stream_options"]["include_usage"] is True
    assert answer["request_id"] == "chatcmpl-id"
    assert answer["profile"] == profile("smollm2").fingerprint
    assert "token_offsets" not in answer
    assert "stop" not in answer["sampling_params"]


def test_the_requests_own_id_wins() -> None:
    assert render_chat(renderer("tiny"), **say("x", request_id="mine"))["request_id"] == "chatcmpl-mine"
    with pytest.raises(BadRequest) as caught:
        render_chat(renderer("tiny"), **say("x", request_id="m" * 256))
    assert caught.value.param == "request_id"


def test_unknown_model() -> None:
    with pytest.raises(NotFound, match="`other` does not exist") as caught:
        render_chat(renderer("tiny"), **say("x", model="other"))
    assert caught.value.param == "model"


@settings(max_examples=60, deadline=None)
@given(text=texts, size=st.integers(1, 40), side=st.sampled_from(["left", "right"]))
def test_truncation_keeps_one_end(text: str, size: int, side: str) -> None:
    render = renderer("smollm2")
    whole = render_chat(render, **say(text))["token_ids"]
    cut = render_chat(render, **say(text, truncate_prompt_tokens=size, truncation_side=side))["token_ids"]
    assert cut == (whole[-size:] if side == "left" else whole[:size])


def test_tool_schemas_are_printed_as_they_were_sent() -> None:
    function = '{"strict": true, "parameters": {"z": 1e-05, "a": [1.0, 12345678901234567890]}, "name": "f"}'
    tool = f'{{"function": {function}, "type": "function"}}'
    request = say("x", tools=[json.loads(tool)])
    render = renderer("qwen3")
    assert tool in render.profile.tokenizer.decode(render_chat(render, **request)["token_ids"])
