"""Which formats a model writes its reasoning and its tool calls in, told by its chat template and its tokenizer.

The names are vLLM's parsers'. Rules are tried in order and the first that holds decides: many families share a marker, and differ
in what stands beside it. A format that no rule knows is none, rather than the one that looks most like it.
"""

import re
from collections.abc import Set
from dataclasses import dataclass

from tokenizers import Tokenizer

from model_profile.harmony_vocabulary import speaks_harmony


@dataclass(frozen=True)
class Formats:
    """Names of parsers; None where the model shows no such format."""

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None


@dataclass(frozen=True)
class _Rule:
    """Holds if the template has all of `template` (regular expressions) and none of `without`, and the tokenizer has added all of
    `tokens`."""

    name: str
    template: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def holds(self, template: str, tokens: Set[str]) -> bool:
        if not all(re.search(pattern, template) for pattern in self.template):
            return False
        return not any(re.search(pattern, template) for pattern in self.without) and all(token in tokens for token in self.tokens)


_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
# Line breaks in a template's literals are written as such or escaped, and quotes may be escaped too.
_LINE, _QUOTE = r"(?:\\n|\n)", r"\\?[\"']"
# One literal may end and the next begin between a marker and what follows it.
_NEXT = rf"(?:\s|\\n)*(?:{_QUOTE}\s*-?\}}\}}\s*\{{\{{-?\s*{_QUOTE})?"
_JSON_CALL = rf"<tool_call>{_NEXT}\{{+\s?{_QUOTE}name{_QUOTE}"
_CHATML, _ROLES = r"<\|im_start\|>", r"<\|start_of_role\|>"
# Not where the template merely takes past answers apart, as in `content.split('<think>')`.
_THINK = r"<think>(?![\"'](?:\)| in\b))"
_PROMPT_OPENS_THINK = rf"<think>{_LINE}*[\"']\s*-?\}}\}}\s*(?:\{{%-?\s*endif\s*-?%\}}\s*)*\Z"
_LLAMA_JSON = r"function name, \\?\"parameters"
_DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>"

_TOOLS = (
    _Rule("gemma4", (r"<\|tool_call>call:",)),
    _Rule("functiongemma", (r"<start_function_call>call:",)),
    _Rule("seed_oss", (r"<seed:tool_call>",)),
    _Rule("minimax_m2", (r"<minimax:tool_call>",)),
    _Rule("kimi_k2", tokens=("<|tool_calls_section_begin|>",)),
    # The distilled R1s have R1's template on a tokenizer without its markers: they were not taught to call.
    _Rule("deepseek_v3", (_DEEPSEEK_CALLS, r"```json"), tokens=(_DEEPSEEK_CALLS,)),
    _Rule("deepseek_v31", (_DEEPSEEK_CALLS, r"<｜tool▁sep｜>"), tokens=(_DEEPSEEK_CALLS,)),
    _Rule("mistral", (r"\[TOOL_CALLS\]",)),
    _Rule("glm47", (r"<arg_key>", r"['\"]<tool_call>['\"]\s*[+~]\s*tc\.name")),
    _Rule("glm45", (r"<arg_key>", r"<tool_call>")),
    _Rule("qwen3_coder", (r"<tool_call>", r"<function=", r"<parameter=")),
    _Rule("granite", (_ROLES, r"<\|tool_call\|>")),
    _Rule("granite4", (_ROLES, _JSON_CALL)),
    _Rule("granite-20b-fc", (r"<function_call> ", r"<\|function_call_library\|>")),
    _Rule("phi4_mini_json", (r"functools\[",)),
    _Rule("phi4_mini_json", tokens=("<|tool_call|>", "<|/tool_call|>")),
    _Rule("internlm", (r"<\|action_start\|>\s*<\|plugin\|>",)),
    _Rule("hunyuan_a13b", (r"<tool_calls>", r"<\|extra_0\|>")),
    _Rule("jamba", (r"<tool_calls>", r"<\|bom\|>")),
    _Rule("xlam", (r"single JSON array", rf"{_QUOTE}tool_call_name{_QUOTE}")),
    _Rule("hermes", (_JSON_CALL,)),
    _Rule("llama4_pythonic", (r"<\|header_start\|>", r"\[func_name1\(")),
    _Rule("pythonic", (r"\[func_name1\(",)),
    _Rule("llama4_json", (r"<\|header_start\|>", _LLAMA_JSON)),
    _Rule("llama3_json", (r"<\|start_header_id\|>", _LLAMA_JSON)),
)
_REASONING = (
    _Rule("gemma4", (r"<\|channel>",)),
    _Rule("seed_oss", (r"<seed:think>",)),
    _Rule("minimax_m2", (r"<minimax:tool_call>", _THINK)),
    _Rule("kimi_k2", (_THINK,), tokens=("<|tool_calls_section_begin|>",)),
    _Rule("deepseek_v3", (r"<｜Assistant｜>", r"</think>", r"\bthinking\b")),
    _Rule("deepseek_r1", (r"<｜Assistant｜>", r"</think>")),
    _Rule("mistral", (r"\[THINK\]",)),
    _Rule("mistral", (r"\[INST\]", _THINK)),
    _Rule("glm45", (r"<arg_key>", _THINK)),
    _Rule("hunyuan_a13b", (r"<\|extra_0\|>", _THINK)),
    _Rule("ernie45", (_CHATML, r"<response>", _THINK)),
    _Rule("granite", (r"Here is my thought process:",)),
    _Rule("step3", (r"<\|BOT\|>", _THINK)),
    _Rule("olmo3", (r"built by Ai2", _THINK)),
    _Rule("nemotron_v3", (r"truncate_history_thinking", _THINK)),
    _Rule("step3p5", (_CHATML, r"<function=", r"\\n</think>\\n['\"]", _PROMPT_OPENS_THINK)),
    # QwQ, and Qwen3 that always thinks.
    _Rule("deepseek_r1", (_CHATML, _PROMPT_OPENS_THINK), without=(r"enable_thinking",)),
    _Rule("qwen3", (_CHATML, _THINK)),
    _Rule("deepseek_r1", (_THINK,), without=(r"<response>",)),
)


def detect(template: str | None, tokenizer: Tokenizer) -> Formats:
    """The formats of a model. `template`: the Jinja source."""
    if speaks_harmony(tokenizer):
        return Formats("openai_gptoss", "openai")
    if template is None:
        return Formats()
    source = _COMMENT.sub("", template)
    tokens = frozenset(token.content for token in tokenizer.get_added_tokens_decoder().values())
    return Formats(_first(_REASONING, source, tokens), _first(_TOOLS, source, tokens))


def _first(rules: tuple[_Rule, ...], template: str, tokens: Set[str]) -> str | None:
    return next((rule.name for rule in rules if rule.holds(template, tokens)), None)
