"""One conversation in three request shapes is one prompt, and one choice of tokens."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.render.rendering import render_chat, render_messages, render_responses, renderer
from tests.render.talks import Talk, as_chat, as_messages, as_responses, talks

asked = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.01, 1),
        "top_k": st.integers(-1, 50),
        "seed": st.integers(0, 9),
        "stop_token_ids": st.just([5]),
        "return_token_ids": st.booleans(),
        "cache_salt": st.just("salt"),
        "priority": st.integers(-3, 3),
        "tool_choice": st.sampled_from(["auto", "none"]),
        "reasoning_effort": st.sampled_from(["low", "medium", "high"]),
        "stop": st.just(["###"]),
    },
)


def in_messages(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a chat request as Anthropic has them."""
    own = {"stop_sequences": fields.get("stop"), "output_config": {"effort": fields.get("reasoning_effort")}}
    choice = {"tool_choice": {"type": fields["tool_choice"]}} if "tool_choice" in fields else {}
    return {**without(fields, "stop", "reasoning_effort"), **own, **choice}


def in_responses(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a chat request as the Responses API has them."""
    return {
        **without(fields, "max_tokens", "reasoning_effort"),
        "max_output_tokens": fields["max_tokens"],
        "reasoning": {"effort": fields.get("reasoning_effort"), "summary": "auto"},
    }


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


@pytest.mark.parametrize("family", ["smollm2", "qwen3", "gptoss"])
@settings(max_examples=60, deadline=None)
@given(talk=talks(), fields=asked, plain=st.booleans(), other=st.booleans())
def test_the_same_conversation_in_three_shapes(family: str, talk: Talk, fields: dict[str, Any], plain: bool, other: bool) -> None:
    render, fields = renderer(family), {"max_tokens": 7, **fields}
    chat = render_chat(render, **as_chat(talk), **fields)
    messages = render_messages(render, **as_messages(talk, plain=plain, joined=other), **in_messages(fields))
    responses = render_responses(render, **as_responses(talk, plain=plain, instructions=other), **in_responses(fields))
    assert [answer.pop("request_id") for answer in (chat, messages, responses)] == ["chatcmpl-id", "msg_id", "resp_id"]
    assert chat["token_ids"] == messages["token_ids"]
    assert chat["token_ids"] == responses["token_ids"]
    assert chat == messages == responses


@pytest.mark.parametrize("family", ["qwen3", "gptoss"])
def test_nothing_of_a_conversation_is_lost(family: str) -> None:
    """Or the law above would hold of shapes that all lose the same."""
    asked = {"role": "user", "content": "mark0"}
    thought = {"type": "thinking", "thinking": "mark1"}
    call = {"type": "tool_use", "id": "c", "name": "mark2", "input": {"mark3": "mark4"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "mark5"}
    schema = {"type": "object", "properties": {"mark6": {"type": "string"}}}
    request = {
        "max_tokens": 1,
        "system": "mark7",
        "tools": [{"name": "mark2", "description": "mark8", "input_schema": schema}],
        "messages": [asked, {"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}],
    }
    render = renderer(family)
    text = render.profile.tokenizer.decode(render_messages(render, **request)["token_ids"], skip_special_tokens=False)
    assert [number for number in range(9) if f"mark{number}" not in text] == []
