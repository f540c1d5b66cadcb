"""Texts and ids as prompts."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol.errors import BadRequest
from tests.render.rendering import render_completion, renderer
from tests.tokenizers import profile

FAMILIES = ("smollm2", "tiny", "llama3_1", "qwen3")
texts = st.text(min_size=1, max_size=60)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=50, deadline=None)
@given(prompts=st.lists(texts, min_size=1, max_size=4), special=st.booleans())
def test_each_text_is_a_request_of_its_own(family: str, prompts: list[str], special: bool) -> None:
    assume(all(profile(family).tokenizer.encode(text, add_special_tokens=special).ids for text in prompts))
    answers = render_completion(renderer(family), prompt=prompts, add_special_tokens=special, return_token_offsets=True)
    encode = profile(family).tokenizer.encode
    assert [answer["token_ids"] for answer in answers] == [encode(text, add_special_tokens=special).ids for text in prompts]
    for text, answer in zip(prompts, answers, strict=True):
        assert all(0 <= start <= end <= len(text) for start, end in answer["token_offsets"])
    ids = ["cmpl-id"] if len(prompts) == 1 else [f"cmpl-id-{index}" for index in range(len(prompts))]
    assert [answer["request_id"] for answer in answers] == ids


@settings(max_examples=50, deadline=None)
@given(prompts=st.lists(st.lists(st.integers(0, 436), min_size=1, max_size=20), min_size=1, max_size=4))
def test_ids_pass_untouched(prompts: list[list[int]]) -> None:
    render = renderer("tiny")
    assert [answer["token_ids"] for answer in render_completion(render, prompt=prompts)] == prompts
    assert render_completion(render, prompt=prompts[0])[0]["token_ids"] == prompts[0]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=50, deadline=None)
@given(text=texts, size=st.integers(1, 20))
def test_truncation_keeps_bos_and_the_tail(family: str, text: str, size: int) -> None:
    render = renderer(family)
    assume(profile(family).tokenizer.encode(text).ids)  # smollm2's vocabulary lacks some bytes
    whole = render_completion(render, prompt=text)[0]["token_ids"]
    answer = render_completion(render, prompt=text, truncate_prompt_tokens=size, return_token_offsets=True)[0]
    cut = answer["token_ids"]
    assert len(cut) == min(size, len(whole)) == len(answer["token_offsets"])
    adds_bos = profile(family).tokenizer.num_special_tokens_to_add(is_pair=False) > 0
    if adds_bos and size > 1:
        assert cut[0] == whole[0]
        assert cut[1:] == whole[1:][-(size - 1) :]
    else:
        assert cut == whole[-size:]


def test_truncation_to_what_leaves_room() -> None:
    render = renderer("tiny", max_model_len=32)
    answer = render_completion(render, prompt=[9] * 100, truncate_prompt_tokens=-1, max_tokens=10)[0]
    assert (len(answer["token_ids"]), answer["sampling_params"]["max_tokens"]) == (22, 10)


@pytest.mark.parametrize("size", [0, 33])
def test_a_truncation_that_makes_no_sense(size: int) -> None:
    with pytest.raises(BadRequest) as caught:
        render_completion(renderer("tiny", max_model_len=32), prompt="x", truncate_prompt_tokens=size)
    assert caught.value.param == "truncate_prompt_tokens"


def test_the_default_output_length_shrinks_to_fit_a_given_one_must_fit() -> None:
    render = renderer("tiny", max_model_len=32)
    assert render_completion(render, prompt=[9] * 10)[0]["sampling_params"]["max_tokens"] == 16
    assert render_completion(render, prompt=[9] * 30)[0]["sampling_params"]["max_tokens"] == 2
    with pytest.raises(BadRequest, match=r"30 tokens of prompt and 3 of output are 33, .* 32 tokens; 2 are left") as caught:
        render_completion(render, prompt=[9] * 30, max_tokens=3)
    assert caught.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([9] * 32, "prompt"),
        ([[9], [9] * 32], "prompt.1"),
        (["x", "▁" * 5000], "prompt.1"),
        ([1, 2, 437], "prompt.2"),
        ([[1], [2**31 - 1]], "prompt.1.0"),
    ],
)
def test_prompts_that_do_not_fit_are_named(prompt: object, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render_completion(renderer("tiny", max_model_len=32), prompt=prompt)
    assert caught.value.param == param


def test_a_hopeless_text_is_refused_before_it_is_tokenized() -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} was called")

    render = renderer("tiny", max_model_len=8, tokenizer=Untouchable())
    with pytest.raises(BadRequest, match="in no way fits"):
        render_completion(render, prompt="x" * 10_000)


def test_an_empty_text_among_others() -> None:
    with pytest.raises(BadRequest, match="no tokens") as caught:
        render_completion(renderer("qwen3"), prompt=["a", ""])
    assert caught.value.param == "prompt.1"
    assert len(render_completion(renderer("llama3_1"), prompt=["a", ""])[1]["token_ids"]) == 1
