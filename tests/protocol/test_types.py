"""What the wire types take and refuse, and where their errors point."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.derender import DerenderStreamState
from protocol.errors import invalid
from protocol.generate import GenerateRequest
from protocol.sampling import SamplingParams

USER = {"role": "user", "content": "Hi"}


def problem(model: Any, value: Any) -> tuple[str | None, str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(value)
    error = invalid(caught.value)
    assert error.status == 400
    return error.param, error.message


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [USER, {"role": "alien", "content": "x"}]}, "messages.1.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop": ["ok", ""]}, "stop.1"),
        ({"stop": ["x"] * 33}, "stop"),
        ({"stop": ["日" * 300, "本" * 300]}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    ],
)
def test_a_wrong_chat_request_is_told_its_field(changes: dict[str, Any], param: str) -> None:
    assert problem(ChatCompletionRequest, {"messages": [USER], **changes})[0] == param


@pytest.mark.parametrize("prompt", ["", [], [[]], [1, "a"], {"a": 1}, -1, [-1], ["a", 5]])
def test_a_wrong_prompt_is_told(prompt: Any) -> None:
    param, _ = problem(CompletionRequest, {"prompt": prompt})
    assert param is not None
    assert param.split(".")[0] == "prompt"


@pytest.mark.parametrize("prompt", ["text", [1, 2], ["a", "b"], [[1], [2, 3]]])
def test_the_four_kinds_of_prompt(prompt: Any) -> None:
    assert CompletionRequest(prompt=prompt).prompt == prompt


def test_a_sampling_parameter_that_is_not_known_is_named_unless_it_says_nothing() -> None:
    assert problem(SamplingParams, {"temprature": 0.5}) == ("temprature", "temprature: this parameter is not supported")
    assert problem(GenerateRequest, {"token_ids": [1], "sampling_params": {"spec": 1}})[0] == "sampling_params.spec"
    SamplingParams.model_validate({"watermarking": None, "bad_words": [], "skip_reading_prefix_cache": False, "spec": {}})


def test_what_vllm_renders_is_taken() -> None:
    """The sampling parameters of a real answer of vLLM 0.32's /render."""
    numbers = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0, "max_tokens": 5}
    directives = {"output_kind": 1, "skip_clone": True, "bad_words": [], "skip_reading_prefix_cache": False, "stop_token_ids": []}
    rendered = {**numbers, **directives}
    assert SamplingParams.model_validate(rendered).max_tokens == 5


@pytest.mark.parametrize(
    ("state", "param"),
    [
        ({"prev_tokens": ["a"], "read_offset": 2}, "read_offset"),
        ({"prev_tokens": ["a", "b"], "prefix_offset": 2, "read_offset": 1}, "read_offset"),
        ({"prev_tokens": ["a"] * 1025}, "prev_tokens"),
        ({"output_token_ids": [1, 2], "output_chunk_lens": [1]}, "output_chunk_lens"),
        ({"output_token_ids": [1], "output_chunk_lens": [1, 0]}, "output_chunk_lens.1"),
        ({"logprob_context_token_ids": [1] * 5}, "logprob_context_token_ids"),
        ({"logprob_text_offset": -1}, "logprob_text_offset"),
        ({"context": {"spare": 1}}, "context.spare"),
        ({"anything": 1}, "anything"),
    ],
)
def test_a_state_that_is_not_ours_is_refused(state: dict[str, Any], param: str) -> None:
    assert problem(DerenderStreamState, state)[0] == param


def test_a_fresh_state_is_small() -> None:
    assert DerenderStreamState().wire() == b"{}"
