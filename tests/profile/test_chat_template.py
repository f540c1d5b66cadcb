"""Templates render exactly as transformers renders them, and whatever they raise is a typed error."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from model_profile import BrokenModel, ChatTemplate, TemplateFailed, TemplateInput, TemplateRefused
from model_profile.template_habits import TemplateHabits
from tests.tokenizers import profile

FAMILIES = ("smollm2", "qwen3", "deepseek_v3", "llama3_1", "gemma3", "tiny")

texts = st.text(max_size=30) | st.sampled_from(
    [
        "",
        " ",
        "  padded \n",
        "日本 🙂",
        "<think>\nwhy\n</think>\n\nso",
        "{{ 7 * 7 }}",
        "{% if %}",
        "<|im_end|>",
        "a\r\nb\u00a0",
        "<b>&'\"",
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=6), json_values, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A system message or none, then turns: some with reasoning, tool calls and their results."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(texts)})
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(texts)})
        answer: dict[str, Any] = {"role": "assistant", "content": draw(texts)}
        if draw(st.booleans()):
            answer[draw(st.sampled_from(["reasoning", "reasoning_content"]))] = draw(texts)
        if draw(st.booleans()):
            value = draw(arguments | arguments.map(json.dumps))
            answer["tool_calls"] = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": value}}]
            messages += [answer, {"role": "tool", "tool_call_id": "c1", "content": draw(texts)}]
        elif draw(st.booleans()):
            messages.append(answer)
    return messages


@st.composite
def tool_lists(draw: st.DrawFn) -> list[dict[str, Any]] | None:
    if draw(st.booleans()):
        return None
    return [{"type": "function", "function": {"name": "f", "description": draw(texts), "parameters": draw(arguments)}}]


def reference(template: str, messages: list[dict[str, Any]], **options: Any) -> str | None:
    """What transformers renders, or None where it raises."""
    try:
        return render_jinja_template([messages], chat_template=template, **options)[0][0]
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError):
        return None


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(
    messages=conversations(),
    tools=tool_lists(),
    ending=st.sampled_from(["prompt", "continue", "neither"]),
    thinking=st.sampled_from([None, True, False]),
)
def test_renders_as_transformers(
    family: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    ending: str,
    thinking: bool | None,
) -> None:
    model = profile(family)
    template = model.chat_template
    assert template is not None
    variables = {**model.special_tokens, **({} if thinking is None else {"enable_thinking": thinking})}
    options: dict[str, Any] = {
        "tools": tools,
        "add_generation_prompt": ending == "prompt",
        "continue_final_message": ending == "continue",
    }
    expected = reference(template.source, messages, **options, **variables)
    if expected is None:
        with pytest.raises(TemplateFailed):
            template.render(messages, variables=variables, **options)
    else:
        assert template.render(messages, variables=variables, **options) == expected
        assert template.trace(TemplateInput(messages, variables=variables, **options)) == expected


def one(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render([{"role": "user", "content": "hi"}], variables=variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}\n  {{- m.content }}\n{% endfor %}\nend\n", "hi\nend"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{%- generation -%} x {%- endgeneration -%}", "x"),
        (
            "{% for i in [0, 1, 2, 3] %}{% if i == 1 %}{% continue %}{% elif i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{{ {'b': 1e3, 'a': '<é>'} | tojson }}", '{"b": 1000.0, "a": "<é>"}'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": [\n    2\n  ],\n  "b": 1\n}'),
        ("{{ {'a': 1, 'b': 2} | tojson(separators=(',', ':')) }}", '{"a":1,"b":2}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% set ns = namespace({'a': 1}, b=2) %}{% set ns.c = ns.a + ns.b %}{{ ns.c }}", "3"),
        ("{{ extra }}|{{ missing }}", "7|"),
    ],
)
def test_the_dialect(source: str, expected: str) -> None:
    assert one(source, extra=7) == expected == reference(source, [{"role": "user", "content": "hi"}], extra=7)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        "{{ 'a' * 10 ** 15 }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ 'a' + 1 }}",
        "{{ nothing.deeper }}",
        "{% include 'other' %}",
        "{{ range(10 ** 9) }}",
        "{{ messages[0].content.nope() }}",
        "{% macro loop() %}{{ loop() }}{% endmacro %}{{ loop() }}",
    ],
)
def test_a_template_cannot_hurt(source: str) -> None:
    with pytest.raises(TemplateFailed):
        one(source)


def test_a_template_may_refuse() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        one("{{ raise_exception('roles must alternate') }}")
    gemma = profile("gemma3").chat_template
    assert gemma is not None
    with pytest.raises(TemplateRefused, match="alternate"):
        gemma.render([{"role": "assistant", "content": "a"}])


@pytest.mark.parametrize(
    "messages", [[{"role": "assistant", "content": None}], [{"role": "assistant", "content": []}], [{"role": "assistant"}], []]
)
def test_nothing_to_continue(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(TemplateRefused, match="no text to continue"):
        ChatTemplate("{{ messages[0].content }}").render(messages, continue_final_message=True)


def test_a_dropped_message_cannot_be_continued() -> None:
    with pytest.raises(TemplateRefused, match="leaves out the last message"):
        ChatTemplate("fixed").render([{"role": "assistant", "content": "a"}], continue_final_message=True)


def test_the_callers_messages_stay_as_they_were() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}], "reasoning": "r"}]
    before = json.dumps(messages)
    ChatTemplate("{{ messages[0].content[0].text }}").render(messages, continue_final_message=True)
    assert json.dumps(messages) == before


def test_named_templates() -> None:
    template = ChatTemplate.of([{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}], "here")
    messages = [{"role": "user", "content": "x"}]
    assert template.render(messages) == "d"
    assert template.render(messages, tools=[{"type": "function"}]) == "t"


@pytest.mark.parametrize(
    "value", [7, [], [{"name": "rag", "template": "x"}], [{"template": "x"}], ["x"], "{% if %}", "{{ a | nofilter }}"]
)
def test_a_broken_template_says_where(value: Any) -> None:
    with pytest.raises(BrokenModel, match="some/file"):
        ChatTemplate.of(value, "some/file")


@pytest.mark.parametrize(
    ("family", "parts", "null", "objects", "text"),
    [
        ("smollm2", False, False, True, False),
        ("qwen3", False, False, True, True),
        ("deepseek_v3", False, True, False, True),
        ("llama3_1", False, False, True, False),
        ("gemma3", True, False, True, False),
    ],
)
def test_habits_of_real_families(family: str, parts: bool, null: bool, objects: bool, text: bool) -> None:
    template = profile(family).chat_template
    assert template is not None
    found = template.habits()
    assert (found.content_parts, found.null_content, found.argument_objects, found.argument_text) == (parts, null, objects, text)


def habits(source: str) -> TemplateHabits:
    return ChatTemplate(source).habits()


def test_habits_of_made_up_templates() -> None:
    assert not habits("{{ messages[0].content }}").content_parts
    assert not habits("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}").content_text
    assert not habits("{% for m in messages %}{{ m.content | tojson }}{% endfor %}").content_parts
    assert habits("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}").content_parts
    prints_none = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    )
    assert not habits(prints_none).null_content
    assert habits("{% if m.role == 'developer' %}{% endif %}").developer_role
    assert not habits("developers").developer_role


@pytest.mark.parametrize(
    "program",
    [
        "{{ messages[9].role }}",
        "{{ messages[0].nothing.more }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ 1 + messages[0].content }}",
        "{{ messages + 1 }}",
        "{% set n = namespace(a=1) %}{{ n.b.c }}",
        "{% for m in messages %}{{ loop.nothing.more }}{% endfor %}",
        "{{ cycler(1).nothing.more }}",
    ],
)
def test_what_fails_is_told_without_the_names_of_classes(program: str) -> None:
    """And in the same words whether sources are followed or not."""
    template, given = ChatTemplate(program), TemplateInput([{"role": "user", "content": "x"}])
    told = []
    for run in (template.write, template.trace):
        with pytest.raises(TemplateFailed) as caught:
            run(given)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert not re.search(r"Traced|Namespace|jinja2|model_profile|_", told[0])
