"""Which formats a model writes its reasoning and its tool calls in, told by its chat template and its tokenizer.

The names are vLLM's parsers'. Rules are tried in order, the most telling first: many families share a marker, and their templates
differ in what stands beside it.
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
    """Holds if the template has all of `template` (regular expressions) and none of `without`, and the vocabulary all of
    `tokens`."""

    name: str
    template: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def holds(self, template: str, tokens: Set[str]) -> bool:
        if not all(re.search(pattern, template) for pattern in self.template):
            return False
        return not any(re.search(pattern, template) for pattern in self.without) and all(token in tokens for token in self.tokens)


_LINE = r"(?:\\n|\n)"
_QUOTE = r"""\\?["']"""

_TOOLS = (
    _Rule("gemma4", (r"<\|tool_call>call:",)),
    _Rule("functiongemma", (r"<start_function_call>call:",)),
    _Rule("seed_oss", (r"<seed:tool_call>",)),
    _Rule("minimax_m2", (r"<minimax:tool_call>",), without=(r"\]<\]minimax\[>\[",)),
    _Rule("kimi_k2", tokens=("<|tool_calls_section_begin|>",)),
    _Rule("deepseek_v31", (r"<｜tool▁calls▁begin｜>", r"<｜tool▁sep｜>"), without=(r"```json", r"<｜DSML｜")),
    _Rule("deepseek_v3", (r"<｜tool▁calls▁begin｜>", r"```json"), without=(r"<｜DSML｜",)),
    _Rule("mistral", (r"\[TOOL_CALLS\]",)),
    _Rule("glm47", (r"<arg_key>", r"\{\{-\s*['\"]<tool_call>['\"]\s*[+~]\s*tc\.name")),
    _Rule("glm45", (r"<arg_key>", r"<tool_call>")),
    _Rule("qwen3_coder", (r"<function=", r"<parameter="), without=(r"<seed:",)),
    _Rule("granite", (r"<\|start_of_role\|>", r"<\|tool_call\|>")),
    _Rule("phi4_mini_json", (r"functools\[",)),
    _Rule("phi4_mini_json", tokens=("<|tool_call|>", "<|/tool_call|>")),
    _Rule("internlm", (r"<\|action_start\|>\s*<\|plugin\|>",)),
    _Rule("hunyuan_a13b", (r"<tool_calls>", r"<\|extra_0\|>")),
    _Rule("jamba", tokens=("<tool_calls>", "</tool_calls>")),
    _Rule("xlam", (r"single JSON array", rf"{_QUOTE}tool_call_name{_QUOTE}")),
    _Rule("llama4_pythonic", (r"<\|header_start\|>", r"\[func_name1\(")),
    _Rule("pythonic", (r"\[func_name1\(",)),
    _Rule("llama3_json", (r"<\|(?:start_)?header_(?:id|start)\|>|<\|start_header_id\|>", rf"{_QUOTE}parameters{_QUOTE}: ")),
    _Rule("hermes", (rf"<tool_call>\s*(?:{_LINE})?\s*\{{ ?{_QUOTE}(?:name|arguments){_QUOTE}",)),
)
_REASONING = (
    _Rule("gemma4", (r"<\|channel>thought",)),
    _Rule("seed_oss", (r"<seed:think>|think_begin_token",), tokens=()),
    _Rule("minimax_m2", (r"<minimax:tool_call>", r"<think>"), without=(r"\]<\]minimax\[>\[",)),
    _Rule("kimi_k2", (r"<think>",), tokens=("<|tool_calls_section_begin|>",)),
    _Rule("deepseek_v3", (r"<｜Assistant｜>", r"</think>", r"\bthinking\b")),
    _Rule("deepseek_r1", (r"<｜Assistant｜>", r"</think>")),
    _Rule("mistral", (r"\[THINK\]",)),
    _Rule("glm45", (r"<arg_key>", r"<think>")),
    _Rule("hunyuan_a13b", (r"<think>", r"<\|extra_0\|>")),
    _Rule("ernie45", (r"<think>", r"<response>", r"<\|im_start\|>")),
    _Rule("granite", (r"Here is my thought process:",)),
    _Rule("step3", (r"<\|BOT\|>", r"<think>")),
    _Rule("nemotron_v3", (r"truncate_history_thinking", r"<think>")),
    _Rule("qwen3", (r"<\|im_start\|>", r"<think>")),
    _Rule("deepseek_r1", (r"<think>\s*(?:\\n|\n)?['\"]\s*-?\}\}\s*(?:\{%-?\s*endif\s*-?%\}\s*)*\Z",)),
)


def detect(template: str | None, tokenizer: Tokenizer) -> Formats:
    """The formats of a model. `template`: the Jinja source."""
    if speaks_harmony(tokenizer):
        return Formats("openai_gptoss", "openai")
    if template is None:
        return Formats()
    tokens = frozenset(token.content for token in tokenizer.get_added_tokens_decoder().values())
    return Formats(_first(_REASONING, template, tokens), _first(_TOOLS, template, tokens))


def _first(rules: tuple[_Rule, ...], template: str, tokens: Set[str]) -> str | None:
    return next((rule.name for rule in rules if rule.holds(template, tokens)), None)
