"""Law of the rendered prompt: its last turn alone tells whether reasoning is open."""

import pytest

from tests.parsers.kit import Answer, Setting, encode, parse, sized, spell

QWEN, SMOL = "qwen3", "smollm2"
USER, ASSISTANT = "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|>assistant\n"


def read(tokenizer: str, reasoning: str, prompt: list[int] | str, output: str) -> tuple[str, str]:
    """Reasoning and content of an output after a prompt."""
    setting = Setting(tokenizer, reasoning, "hermes")
    ids, start = encode(tokenizer, output), encode(tokenizer, prompt) if isinstance(prompt, str) else prompt
    found = parse(setting, [ids], start).answer
    assert parse(setting, sized(ids, 1), start).answer == found
    assert found == Answer(found.reasoning, found.content, [])
    return found.reasoning, found.content


@pytest.mark.parametrize("tokenizer", [QWEN, SMOL])
@pytest.mark.parametrize("reasoning", ["qwen3", "deepseek_r1", "minimax_m2", "step3", "nemotron_v3"])
class TestLines:
    """Families whose markers stand on lines of their own, as tokens and as text."""

    def test_neither_opened_nor_closed(self, tokenizer: str, reasoning: str) -> None:
        assert read(tokenizer, reasoning, USER + ASSISTANT, "42") == ("", "42")
        assert read(tokenizer, reasoning, USER + ASSISTANT, "<think>\nwhy\n</think>42") == ("why", "42")

    def test_opened(self, tokenizer: str, reasoning: str) -> None:
        for tail in ("<think>\n", "<think>"):
            assert read(tokenizer, reasoning, USER + ASSISTANT + tail, "why\n</think>42") == ("why", "42")
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>", "\nwhy") == ("why", "")
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>\n", "\nwhy") == ("\nwhy", "")

    def test_opened_and_the_model_opens_it_again(self, tokenizer: str, reasoning: str) -> None:
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>\n", "<think>\nwhy\n</think>42") == ("why", "42")

    def test_closed(self, tokenizer: str, reasoning: str) -> None:
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>\n\n</think>\n", "42") == ("", "42")

    def test_an_answer_that_is_continued(self, tokenizer: str, reasoning: str) -> None:
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>\nwhy\n</think>\n\nIt is", " 42") == ("", " 42")
        assert read(tokenizer, reasoning, USER + ASSISTANT + "<think>\nLet me", " see\n</think>42") == (" see", "42")

    def test_what_other_turns_quote_says_nothing(self, tokenizer: str, reasoning: str) -> None:
        for quoted in ("open <think>", "close </think>", "<think>\nboth\n</think>"):
            prompt = f"<|im_start|>user\n{quoted}<|im_end|>\n" + ASSISTANT
            assert read(tokenizer, reasoning, prompt, "42") == ("", "42")
            assert read(tokenizer, reasoning, prompt + "<think>\n", "why</think>42") == ("why", "42")


def test_no_prompt() -> None:
    assert read(QWEN, "deepseek_r1", "", "why</think>42") == ("why", "42")
    assert read(QWEN, "qwen3", "", "42") == ("", "42")


def test_the_word_in_a_turn_that_is_continued_is_no_marker_if_ordinary_tokens_spell_it() -> None:
    prompt = [*encode(QWEN, USER + ASSISTANT), *spell(QWEN, "The tag <think>")]
    assert read(QWEN, "qwen3", prompt, " opens it") == ("", " opens it")


def test_turns_without_control_tokens() -> None:
    """Where no token tells turns apart, only what stands at the very end counts."""
    assert read(SMOL, "qwen3", "USER: what is <think>?\nASSISTANT:", " A tag.") == ("", " A tag.")
    assert read(SMOL, "qwen3", "USER: Hi\nASSISTANT: <think>\n", "why</think>42") == ("why", "42")


def test_deepseeks_lone_end_marker() -> None:
    for tokenizer in ("deepseek_v3_think", "deepseek_v3"):
        begin = "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>"
        assert read(tokenizer, "deepseek_v3", begin + "</think>", "42") == ("", "42")
        assert read(tokenizer, "deepseek_v3", begin + "<think>", "why</think>42") == ("why", "42")
        assert read(tokenizer, "deepseek_r1", begin + "<think>\n", "why\n</think>\n\n42") == ("why", "42")
        assert read(tokenizer, "deepseek_v3", begin + "</think>old<｜end▁of▁sentence｜><｜User｜>?<｜Assistant｜>", "42") == (
            "",
            "42",
        )


def test_glm() -> None:
    for reasoning in ("glm45", "glm47"):
        assert read("qwen3_glm", reasoning, "<|user|>Hi<|assistant|></think>", "42") == ("", "42")
        assert read("qwen3_glm", reasoning, "<|user|>Hi<|assistant|><think>", "why</think>42") == ("why", "42")
    assert read("qwen3_glm", "glm45", "<|user|>Hi/nothink<|assistant|>\n<think></think>", "\n42") == ("", "42")
    assert read("qwen3_glm", "glm45", "<|user|>Hi<|assistant|>", "\n<think>why</think>\n42") == ("why", "42")


def test_seeds_budget_within_reasoning() -> None:
    begin, told = "<seed:bos>assistant\n", "The current thinking budget is 0.</seed:cot_budget_reflect>\n"
    prompt = f"<seed:bos>user\nHi<seed:eos>{begin}<seed:think><seed:cot_budget_reflect>"
    assert read("qwen3_marked", "seed_oss", prompt, f"{told}</seed:think>42") == (told, "42")
    assert read("qwen3_marked", "seed_oss", begin, "<seed:think>why</seed:think>\n42") == ("why", "42")


def test_gemmas_channel() -> None:
    begin = "<|turn>user\nHi<turn|>\n<|turn>model\n"
    assert read("qwen3_marked", "gemma4", begin, "42") == ("", "42")
    assert read("qwen3_marked", "gemma4", begin, "<|channel>thought\nwhy\n<channel|>42") == ("why", "42")
    assert read("qwen3_marked", "gemma4", begin + "<|channel>thought\n<channel|>", "42") == ("", "42")
    for opened, output in (("<|channel>thought\n", "why"), ("<|channel>thought", "\nwhy"), ("<|channel>", "thought\nwhy")):
        assert read("qwen3_marked", "gemma4", begin + opened, f"{output}\n<channel|>42") == ("why", "42"), opened


def test_mistrals_system_prompt_shows_the_markers() -> None:
    system = "[INST]First draft:[THINK]Your thoughts[/THINK]Then answer.[/INST]"
    assert read("qwen3_marked", "mistral", system, "42") == ("", "42")
    assert read("qwen3_marked", "mistral", system, "[THINK]why[/THINK]42") == ("why", "42")
    spelled = "<|im_start|>system\nfollow:\n<think>\nYour thoughts\n</think>\nThen answer<|im_end|>\n" + ASSISTANT
    assert read(SMOL, "mistral", spelled, "<think>\nwhy\n</think>\n42") == ("why", "42")


def test_kimi() -> None:
    begin = "<|im_user|>user<|im_middle|>Hi<|im_assistant|>assistant<|im_middle|>"
    assert read("qwen3_kimi", "kimi_k2", begin, "<think>why</think>42") == ("why", "42")
    assert read("qwen3_kimi", "kimi_k2", begin + "<think>", "why</think>42") == ("why", "42")
    assert read("qwen3_kimi", "kimi_k2", begin + "<think></think>", "42") == ("", "42")


def test_hunyuans_and_ernies_answers_are_wrapped() -> None:
    fast = USER + ASSISTANT + "<think>\n\n</think>\n"
    assert read(SMOL, "hunyuan_a13b", fast, "<answer>\n42\n</answer>") == ("", "42")
    assert read(SMOL, "hunyuan_a13b", USER + ASSISTANT, "<think>\nwhy\n</think>\n<answer>\n42\n</answer>") == ("why", "42")
    opened = USER + ASSISTANT + "<think>\n"
    assert read(SMOL, "ernie45", opened, "why\n</think>\n\n<response>\n42\n</response>\n") == ("why", "42")


def test_granites_phrases() -> None:
    text = "Here is my thought process: why\n\nHere is my response: 42"
    assert read(SMOL, "granite", USER + ASSISTANT, text) == ("why", "42")
    assert read(SMOL, "granite", USER + ASSISTANT, "42") == ("", "42")
