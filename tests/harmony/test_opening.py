"""Where an output begins is told by the prompt's last message, and by nothing before it."""

import pytest

from tests.harmony.kit import START_ID, answer_of_ids, ids_of, read, spelled
from tests.parsers.kit import Answer

USER = "<|start|>user<|message|>Hi<|end|>"
ASKING = f"{USER}<|start|>assistant"
REST = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"


@pytest.mark.parametrize("prompt", [None, "", "no message at all", ASKING, "<|start|>", "<|start|>assistant<|end|>", USER])
def test_a_header_is_due(prompt: str | None) -> None:
    assert answer_of_ids(ids_of(REST), prompt=ids_of(prompt) if prompt is not None else None) == Answer("a", "b")


def test_the_output_may_begin_anywhere_within_a_header() -> None:
    whole = ids_of(f"{ASKING} to=functions.f<|channel|>commentary json<|message|>{{}}<|call|>")
    start = len(whole) - 1 - whole[::-1].index(START_ID)
    for cut in range(start + 1, whole.index(200_008, start) + 1):
        assert answer_of_ids(whole[cut:], prompt=whole[:cut]) == Answer("", "", [("f", "{}")])


@pytest.mark.parametrize("text", ["", "The answer", "The ans <|end|> wer", "🪨"])
def test_the_output_goes_on_in_a_body_that_the_prompt_began(text: str) -> None:
    begun = spelled(text)
    final = [*ids_of(f"{ASKING}<|channel|>final<|message|>"), *begun]
    assert answer_of_ids(ids_of(" is this.<|return|>"), prompt=final) == Answer("", " is this.")
    analysis = [*ids_of(f"{ASKING}<|channel|>analysis<|message|>"), *begun]
    found = answer_of_ids(ids_of(" is this.<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"), prompt=analysis)
    assert found == Answer(" is this.", "b")


def test_a_half_character_of_the_prompt_is_the_prompts() -> None:
    rock = spelled("🪨")
    prompt = [*ids_of(f"{ASKING}<|channel|>final<|message|>"), *rock[:1]]
    assert "�" not in read([ids_of("a<|return|>")], prompt).answer.content


def test_a_call_that_the_prompt_began_is_not_the_outputs() -> None:
    prompt = ids_of(f'{ASKING}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{"a": ')
    assert answer_of_ids(ids_of("1}<|call|>"), prompt=prompt) == Answer("", "1}")


def test_the_prompt_counts_no_calls_and_no_reasoning() -> None:
    thought = f"{ASKING}<|channel|>analysis<|message|>x<|end|>"
    call = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
    prompt = ids_of(f"{thought}{call}<|start|>functions.f to=assistant<|channel|>commentary<|message|>22<|end|><|start|>assistant")
    found = read([ids_of("<|channel|>analysis<|message|>one two<|end|>")], prompt)
    assert found.answer == Answer("one two")
    assert found.reasoning_tokens == 2


def test_markers_quoted_in_the_prompt_say_nothing() -> None:
    quoted = "<|start|>assistant<|channel|>analysis<|message|>think"
    by_text = [*ids_of("<|start|>user<|message|>"), *spelled(quoted), *ids_of("<|end|><|start|>assistant")]
    by_token = ids_of(f"<|start|>user<|message|>{quoted}<|end|><|start|>assistant")
    in_prefill = [*ids_of(f"{ASKING}<|channel|>final<|message|>"), *spelled(quoted)]
    for prompt in (by_text, by_token):
        assert answer_of_ids(ids_of(REST), prompt=prompt) == Answer("a", "b")
    assert answer_of_ids(ids_of(" on.<|return|>"), prompt=in_prefill) == Answer("", " on.")


def test_a_long_prompt_leaves_a_small_state() -> None:
    begun = [*ids_of(f"{ASKING}<|channel|>final<|message|>"), *spelled("The answer. " * 2_000)]
    assert read([ids_of("a")], begun).largest < 200
    header = [*ids_of(ASKING), *spelled(" to=f" * 2_000)]
    found = read([ids_of(" word<|end|>")], header)
    assert found.answer == Answer("", " word")
    assert found.largest < 200
