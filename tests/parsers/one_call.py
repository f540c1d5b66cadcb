"""One plain call in each tool format, as its template writes it: function `f` with a string parameter `a`."""

VALUE = "@"
"""Stands for the parameter's value."""

_HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": "@"}}\n</tool_call>'
_QWEN = "<tool_call>\n<function=f>\n<parameter=a>\n@\n</parameter>\n</function>\n</tool_call>"
_LLAMA = '{"name": "f", "parameters": {"a": "@"}}'

CALLS = {
    "hermes": _HERMES,
    "qwen3_json": _HERMES,
    "granite4": _HERMES,
    "qwen3_coder": _QWEN,
    "qwen3_xml": _QWEN,
    "step3p5": _QWEN,
    "nemotron_v3": _QWEN,
    "seed_oss": "<seed:tool_call>\n<function=f>\n<parameter=a>@</parameter>\n</function>\n</seed:tool_call>",
    "glm45": "\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>@</arg_value>\n</tool_call>",
    "glm47": "<tool_call>f<arg_key>a</arg_key><arg_value>@</arg_value></tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">@</parameter>\n</invoke>\n</minimax:tool_call>',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": "@"}<|tool_call_end|><|tool_calls_section_end|>',
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"a": "@"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "@"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "@"}',
    "llama3_json": _LLAMA,
    "llama4_json": _LLAMA,
    "pythonic": '[f(a="@")]',
    "llama4_pythonic": '<|python_start|>[f(a="@")]<|python_end|>',
    "granite": '<|tool_call|>[{"name": "f", "arguments": {"a": "@"}}]',
    "granite-20b-fc": '<function_call> {"name": "f", "arguments": {"a": "@"}}',
    "phi4_mini_json": 'functools[{"name": "f", "arguments": {"a": "@"}}]',
    "internlm": '<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": "@"}}<|action_end|>',
    "jamba": '<tool_calls>[\n    {"name": "f", "arguments": {"a": "@"}}\n]</tool_calls>',
    "hunyuan_a13b": '<tool_calls>[{"name": "f", "arguments": {"a": "@"}}]</tool_calls>',
    "xlam": '[{"name": "f", "arguments": {"a": "@"}}]',
    "gemma4": '<|tool_call>call:f{a:<|"|>@<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:f{a:<escape>@<escape>}<end_function_call>",
}
