"""Prefixes: their own ids tell whether they begin the assistant's turn, in whatever way it was begun and whatever came before."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profile import ChatTemplate
from protocol.errors import BadRequest
from tests.render.rendering import render_chat, renderer, say
from tests.tokenizers import profile

JsonObject = dict[str, Any]
FAMILIES = ("smollm2", "qwen3", "llama3_1", "deepseek_v3", "gemma3", "gptoss")
HABITS: tuple[JsonObject, ...] = ({}, {"enable_thinking": True}, {"enable_thinking": False})
THOUGHTLESS = "<think>\n\n</think>\n\n"

words = st.text(alphabet="abc de\n日é", min_size=1, max_size=12).filter(str.strip)


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def assistant(text: str, ids: list[int] | None = None) -> JsonObject:
    return {"role": "assistant", "content": text} | ({} if ids is None else {"token_ids": ids})


def encoded(family: str, text: str) -> list[int]:
    return profile(family).tokenizer.encode(text, add_special_tokens=False).ids


def sampled(family: str, text: str) -> list[int]:
    return encoded(family, f"<|channel|>final<|message|>{text}" if family == "gptoss" else text)


def decoded(family: str, ids: list[int]) -> str:
    return profile(family).tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(words, min_size=1, max_size=5).filter(lambda texts: len(texts) % 2), answer=words, forced=st.booleans())
def test_with_the_turns_beginning_or_without_it(family: str, texts: list[str], answer: str, forced: bool) -> None:
    """The same prompt, whatever turns came before; and nothing comes between what the client forced and what was sampled."""
    render = renderer(family)
    asked = [(user, assistant)[index % 2](text) for index, text in enumerate(texts)]
    before = render_chat(render, messages=asked, add_generation_prompt=False)["token_ids"]
    begun = render_chat(render, messages=asked)["token_ids"]
    own = sampled(family, answer)
    messages = [*asked, assistant(answer, own), user("x")]
    found = [
        render_chat(render, messages=messages, prefix={"token_ids": ids, "messages": len(asked)})["token_ids"]
        for ids in (before, begun)
    ]
    assert found[0] == found[1]
    assert found[0][: len(begun) + len(own)] == begun + own
    so_far = begun + sampled(family, "So") if forced else begun
    ids = render_chat(render, messages=messages, prefix={"token_ids": so_far, "messages": len(asked)})["token_ids"]
    assert ids[: len(so_far) + len(own)] == so_far + own


@pytest.mark.parametrize("now", HABITS)
@pytest.mark.parametrize("then", HABITS)
def test_a_turn_that_was_begun_otherwise_than_it_would_be_now(then: JsonObject, now: JsonObject) -> None:
    render = renderer("qwen3")
    begun = render_chat(render, **say("Sun?"), chat_template_kwargs=then)["token_ids"]
    prefix = {"token_ids": begun, "messages": 1}
    own = [*encoded("qwen3", "<think>\nhm\n</think>\n\nYes."), 151645]
    extended = {"prefix": prefix, "chat_template_kwargs": now}
    ids = render_chat(render, messages=[user("Sun?"), assistant("Yes.", own), user("So?")], **extended)["token_ids"]
    end = "\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n" + (THOUGHTLESS if now == HABITS[2] else "")
    assert ids[: len(begun) + len(own)] == begun + own
    assert decoded("qwen3", ids[len(begun) + len(own) :]) == end
    # The same with the answer as text.
    ids = render_chat(render, messages=[user("Sun?"), assistant("Yes."), user("So?")], **extended)["token_ids"]
    assert ids[: len(begun)] == begun
    assert decoded("qwen3", ids[len(begun) :]) == f"Yes.<|im_end|>{end}"
    for messages in ([user("Sun?")], [user("Sun?"), user("So?")]):
        with pytest.raises(BadRequest, match=r"messages\.1 must be the assistant's") as caught:
            render_chat(render, messages=messages, **extended)
        assert caught.value.param == "prefix"


@pytest.mark.parametrize("family", ["qwen3", "smollm2", "llama3_1", "gemma3"])
def test_a_turn_that_another_template_began(family: str) -> None:
    template = profile(family).chat_template
    assert template is not None
    changed = renderer(family, chat_template=ChatTemplate(template.source + "{% if add_generation_prompt %}Well,{% endif %}"))
    begun = render_chat(changed, **say("Sun?"))["token_ids"]
    assert decoded(family, begun).endswith("Well,")
    own = encoded(family, " yes")
    messages = [user("Sun?"), assistant("yes", own), user("So?")]
    ids = render_chat(renderer(family), messages=messages, prefix={"token_ids": begun, "messages": 1})["token_ids"]
    assert ids[: len(begun) + len(own)] == begun + own


@pytest.mark.parametrize("family", ["qwen3", "smollm2", "llama3_1", "deepseek_v3", "gptoss"])
def test_a_turn_that_is_begun_behind_an_answer(family: str) -> None:
    """Its answer goes on there; what is left of a cut answer is no beginning."""
    render, asked = renderer(family), [user("a"), assistant("Hello")]
    begun = {"token_ids": render_chat(render, messages=asked)["token_ids"], "messages": 2}
    own = sampled(family, "again")
    ids = render_chat(render, messages=[*asked, assistant("again", own), user("b")], prefix=begun)["token_ids"]
    assert ids[: len(begun["token_ids"]) + len(own)] == begun["token_ids"] + own
    messages = [*asked, assistant("again"), user("b")]
    anew = decoded(family, render_chat(render, messages=messages)["token_ids"])
    if family != "qwen3":  # which writes the first answer otherwise then
        assert decoded(family, render_chat(render, messages=messages, prefix=begun)["token_ids"]) == anew
    for rest in ([], [user("b")]):
        with pytest.raises(BadRequest, match=r"messages\.2 must be the assistant's"):
            render_chat(render, messages=[*asked, *rest], prefix=begun)
    nothing = {"token_ids": render_chat(render, messages=asked[:1])["token_ids"], "messages": 2}
    ids = render_chat(render, messages=[user("a"), assistant(""), user("b")], prefix=nothing)["token_ids"]
    assert decoded(family, ids[len(nothing["token_ids"]) :]).startswith("<")


def test_an_answer_as_text_behind_harmonys_forced_header() -> None:
    begun = [*render_chat(renderer("gptoss"), **say("Sun?"))["token_ids"], *sampled("gptoss", "")]
    messages = [user("Sun?"), assistant("Yes."), user("So?")]
    ids = render_chat(renderer("gptoss"), messages=messages, prefix={"token_ids": begun, "messages": 1})["token_ids"]
    assert ids == render_chat(renderer("gptoss"), messages=messages)["token_ids"]


def call(number: int) -> JsonObject:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def result(number: int) -> JsonObject:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": f"R{number}"}


CALLED = [user("go"), {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]}, result(1), result(2)]


def test_a_prefix_cannot_end_the_turn_of_results_among_them() -> None:
    render = renderer("qwen3")
    ids = render_chat(render, messages=CALLED[:3], add_generation_prompt=False)["token_ids"]
    with pytest.raises(BadRequest, match=r"goes on with messages\.3") as caught:
        render_chat(render, messages=CALLED, prefix={"token_ids": ids, "messages": 3})
    assert caught.value.param == "prefix"
    # It may end within the turn, which then goes on.
    whole = render_chat(render, messages=CALLED)["token_ids"]
    cut = decoded("qwen3", whole).index("\n<tool_response>\nR2")
    within = encoded("qwen3", decoded("qwen3", whole)[:cut])
    assert render_chat(render, messages=CALLED, prefix={"token_ids": within, "messages": 3})["token_ids"] == whole


@pytest.mark.parametrize("family", ["qwen3", "llama3_1", "deepseek_v3", "gptoss"])
def test_a_prefix_behind_results_gets_no_second_end(family: str) -> None:
    render, messages = (
        renderer(family),
        [CALLED[0], {**CALLED[1], "tool_calls": [call(1)]}, result(1), assistant("done"), user("x")],
    )
    whole = render_chat(render, messages=messages)["token_ids"]
    asked = render_chat(render, messages=messages[:3])["token_ids"]
    ids = render_chat(render, messages=messages, prefix={"token_ids": asked, "messages": 3})["token_ids"]
    assert decoded(family, ids) == decoded(family, whole)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_sampled_ids_are_found_in_a_prefix(family: str, data: st.DataObject) -> None:
    """Also where the user says what the assistant does, and the template begins its turn in more words than one."""
    render, word = renderer(family), data.draw(words)
    switches = {"chat_template_kwargs": data.draw(st.sampled_from(HABITS))}
    messages, expected = [user(word)], []
    ids: list[int] = []
    for turn in range(2):
        ids = render_chat(render, messages=messages, history="extend", **switches)["token_ids"]
        expected += [False] * (len(ids) - len(expected))
        own = sampled(family, word)
        ids, expected = ids + own, expected + [True] * len(own)
        messages += [assistant(word, own)] + ([user(word)] if turn == 0 else [])
    prefix = {"token_ids": ids, "messages": len(messages)}
    answer = render_chat(render, messages=[*messages, user("x")], prefix=prefix, return_token_sources=True, **switches)
    assert answer["token_ids"][: len(ids)] == ids
    assert answer["sampled_mask"] == expected + [False] * (len(answer["token_ids"]) - len(expected))
    assert {message for message, own in zip(answer["message_indices"], answer["sampled_mask"], strict=True) if own} == {1, 3}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma3"])
@settings(max_examples=10, deadline=None)
@given(texts=st.lists(words, min_size=2, max_size=2))
def test_an_answer_that_is_the_first_message(family: str, texts: list[str]) -> None:
    """What the template writes before a first message is there: a default system message, the beginning of text."""
    end = "<|end|>" if family == "gptoss" else ""
    text = texts[0].strip()
    with_ids = [assistant(text, sampled(family, text + end)), user(texts[1])]
    anew = decoded(family, render_chat(renderer(family), messages=[assistant(text), user(texts[1])])["token_ids"])
    assert decoded(family, render_chat(renderer(family), messages=with_ids)["token_ids"]) == anew


@pytest.mark.parametrize("cut", range(1, 30))
def test_harmonys_calls_end_as_calls_wherever_they_were_cut(cut: int) -> None:
    """Up to the recipient nothing says that it is one."""
    said = " to=functions.f<|channel|>commentary json<|message|>{}"
    own = encoded("gptoss", said)[:cut]
    messages = [user("go"), {"role": "assistant", "content": None, "tool_calls": [call(1)], "token_ids": own}, result(1)]
    text = decoded("gptoss", render_chat(renderer("gptoss"), messages=messages)["token_ids"])
    assert f"{decoded('gptoss', own)}<|call|><|start|>functions.f" in text


@pytest.mark.parametrize("said", ["<|channel|>final<|message|>Hel", "<|channel|>analysis<|message|>go to="])
def test_harmonys_other_messages_end_as_such(said: str) -> None:
    messages = [user("go"), assistant("Hel", encoded("gptoss", said)), user("x")]
    text = decoded("gptoss", render_chat(renderer("gptoss"), messages=messages)["token_ids"])
    assert f"{said}<|end|><|start|>user" in text
