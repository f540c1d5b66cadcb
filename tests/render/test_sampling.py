"""Every field that steers generation is mapped, or refused by name."""

from typing import Any

import pytest

from protocol.errors import BadRequest
from tests.render.rendering import render_chat, render_completion, renderer, say
from tests.tokenizers import profile

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def params(**request: Any) -> dict[str, Any]:
    result: dict[str, Any] = render_chat(renderer("smollm2"), **say("x", **request))["sampling_params"]
    return result


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 3),
        ("temperature", 0.0),
        ("top_p", 0.5),
        ("top_k", 7),
        ("min_p", 0.1),
        ("seed", -5),
        ("max_tokens", 9),
        ("min_tokens", 2),
        ("presence_penalty", -1.5),
        ("frequency_penalty", 1.5),
        ("repetition_penalty", 1.1),
        ("allowed_token_ids", [1, 2]),
        ("include_stop_str_in_output", True),
        ("skip_special_tokens", False),
        ("spaces_between_special_tokens", False),
    ],
)
def test_passed_on(field: str, value: Any) -> None:
    assert params(**{field: value})[field] == value


def test_logit_bias_is_by_id_and_clamped() -> None:
    assert params(logit_bias={"5": -200, "49151": 1.5})["logit_bias"] == {"5": -100.0, "49151": 1.5}


def test_stop_ids_are_the_requests_and_the_models() -> None:
    assert params()["stop_token_ids"] == [2]
    assert params(stop_token_ids=[7, 2, 7])["stop_token_ids"] == [7, 2]
    ignoring = params(ignore_eos=True)
    assert ignoring["ignore_eos"] is True
    assert "stop_token_ids" not in ignoring


def test_stop_strings_are_derenders_and_those_of_one_token_the_workers_too() -> None:
    """Exact where a token is the same bytes anywhere, and all text is what the client reads."""
    tokenizer = profile("smollm2").tokenizer
    (stop,) = tokenizer.encode("END", add_special_tokens=False).ids
    assert params(stop=["END", "of several tokens"])["stop_token_ids"] == [2, stop]
    assert params(stop=["END"], ignore_eos=True)["stop_token_ids"] == [stop]
    assert params(stop=["<|im_end|>", "of several"]) == params()
    assert params(stop=["END"], min_tokens=3)["stop_token_ids"] == [2]
    assert params(stop=["END"], tools=[TOOL])["stop_token_ids"] == [2]
    completed = render_completion(renderer("qwen3"), prompt="x", stop="END")[0]["sampling_params"]
    assert len(completed["stop_token_ids"]) == 2
    for family in ("qwen3", "gemma3"):
        assert len(render_chat(renderer(family), **say("x", stop="END"))["sampling_params"]["stop_token_ids"]) == 1


def test_bad_words_are_ids_alone_and_after_a_space() -> None:
    tokenizer = profile("smollm2").tokenizer
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("bad", " bad")]
    assert params(bad_words=["bad"])["bad_words_token_ids"] == ids
    with pytest.raises(BadRequest) as caught:
        params(bad_words=["x", " "])
    assert caught.value.param == "bad_words.1"


def test_max_tokens_is_the_requests_else_what_is_left() -> None:
    assert params(max_completion_tokens=4)["max_tokens"] == 4
    length = len(render_chat(renderer("smollm2"), **say("x"))["token_ids"])
    assert params()["max_tokens"] == 8192 - length
    few = renderer("smollm2", generation_defaults={"max_tokens": 5})
    assert render_chat(few, **say("x"))["sampling_params"]["max_tokens"] == 5
    with pytest.raises(BadRequest) as caught:
        params(max_completion_tokens=8192)
    assert caught.value.param == "max_completion_tokens"


def test_generation_defaults_stand_under_the_requests_values() -> None:
    render = renderer("smollm2", generation_defaults={"temperature": 0.6, "top_k": 20})
    merged = render_chat(render, **say("x", top_k=5))["sampling_params"]
    assert (merged["temperature"], merged["top_k"], merged["top_p"]) == (0.6, 5, 1.0)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 20}, 20)],
)
def test_chat_logprobs(request_: dict[str, Any], expected: int | None) -> None:
    assert params(**request_).get("logprobs") == expected


def test_completion_logprobs() -> None:
    assert render_completion(renderer("tiny"), prompt="x", logprobs=3)[0]["sampling_params"]["logprobs"] == 3
    for value in (21, -1):
        with pytest.raises(BadRequest) as caught:
            render_completion(renderer("tiny"), prompt="x", logprobs=value)
        assert caught.value.param == "logprobs"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_logprobs", 0),
        ("logprob_token_ids", [1]),
        ("use_beam_search", True),
        ("length_penalty", 2.0),
        ("thinking_token_budget", 0),
        ("repetition_detection", {"a": 1}),
        ("vllm_xargs", {"a": 1}),
        ("return_prompt_text", True),
        ("watermarking", True),
        ("guided_json", {"type": "object"}),
        ("guided_choice", ["a"]),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("web_search_options", {"a": 1}),
        ("logit_bias", {"49152": 1}),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"-1": 1}),
        ("allowed_token_ids", []),
        ("min_tokens", 10_000),
    ],
)
def test_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=field) as caught:
        params(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("family", ["smollm2", "gptoss"])
def test_no_token_that_ends_a_turn_is_ever_left_out(family: str) -> None:
    """A worker takes 64; stop strings that are a token take what room is left, for derender finds them in any case."""
    render = renderer(family)
    ends = {*render.profile.eos_token_ids, *(render.harmony.stop_ids if render.harmony else ())}
    asked = [token for token in range(100, 164) if token not in ends]
    for count in range(60, 65):
        request = say("x", stop_token_ids=asked[:count], stop=["END"])
        if count + len(ends) <= 64:
            assert {*render_chat(render, **request)["sampling_params"]["stop_token_ids"]} >= {*asked[:count], *ends}
            continue
        with pytest.raises(BadRequest, match="no more than 64") as caught:
            render_chat(render, **request)
        assert caught.value.param == "stop_token_ids"
    mine = [*asked[: 64 - len(ends)], *ends]
    assert render_chat(render, **say("x", stop_token_ids=mine))["sampling_params"]["stop_token_ids"] == mine
    assert render_chat(render, **say("x", stop_token_ids=asked, ignore_eos=True))["sampling_params"]["stop_token_ids"] == asked


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
def test_ids_are_bounded_by_the_vocabulary(field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        params(**{field: [1, profile("smollm2").vocab_size]})
    assert caught.value.param == f"{field}.1"


def test_top_logprobs_are_bounded() -> None:
    with pytest.raises(BadRequest, match="20") as caught:
        params(logprobs=True, top_logprobs=21)
    assert caught.value.param == "top_logprobs"


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"suffix": "s"}, "suffix"),
        ({"prompt_embeds": "x"}, "prompt_embeds"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
    ],
)
def test_refused_for_completions(request_: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest, match=param) as caught:
        render_completion(renderer("tiny"), prompt="x", **request_)
    assert caught.value.param == param


def test_neutral_values_are_welcome() -> None:
    neutral = {
        "bad_words": [],
        "use_beam_search": False,
        "response_format": {"type": "text"},
        "length_penalty": 1.0,
        "vllm_xargs": {},
        "modalities": ["text"],
    }
    assert params(**neutral) == params()
    assert render_completion(renderer("tiny"), prompt="x", suffix="", best_of=1, n=1)
