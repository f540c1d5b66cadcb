"""How each tool format's template writes content and calls, at random: the other side of `families`, by hand."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.parsers.elements import GLM45, GLM47, MINIMAX, NEMOTRON, QWEN3_CODER, SEED, STEP
from tests.parsers.values import json_texts, keys, names, objects, scalars, texts, values
from tests.parsers.writer import Call, Script

Draw = st.DrawFn
Write = Callable[[Draw, Script, str, int], None]


@dataclass(frozen=True)
class Layout:
    """`write` writes content and so many calls. `most`: calls at most. `before`, `after`: text may stand there. `bare`: how content
    must not begin."""

    write: Write
    most: int = 3
    before: bool = True
    after: bool = True
    bare: str = ""


def _json_call(draw: Draw, script: Script, *, key: str = "arguments") -> None:
    """`{"name": …, "arguments": …}`, in any key order, with other keys, and with any white space."""
    name, value = draw(names), draw(objects())
    text = draw(json_texts(value))
    space = draw(st.sampled_from(("", " ", "\n    ")))
    fields = [("name", f'"{name}"'), (key, text)]
    if draw(st.booleans()):
        fields.insert(
            draw(st.integers(0, 2)), (draw(st.sampled_from(("id", "type", "description"))), draw(json_texts(draw(values()))))
        )
    if draw(st.integers(0, 3)) == 0:
        fields.reverse()
    as_tokens = draw(st.booleans())
    for number, (field, written) in enumerate(fields):
        script.data(("{" if number == 0 else ",") + f'{space}"{field}":{space}')
        script.data(written, as_tokens=as_tokens)
    script.data(f"{space}}}")
    script.calls.append(Call(name, value, text))


def _json_array(draw: Draw, script: Script, count: int) -> None:
    space = draw(st.sampled_from(("", " ", "\n")))
    script.data("[" + space)
    for number in range(count):
        script.data(f",{space}" if number else "")
        _json_call(draw, script)
    script.data(space + "]")


def _tagged(begin: str, end: str, *, separator: str = "", key: str = "arguments") -> Write:
    """A JSON object between two markers, for each call."""

    def write(draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        for number in range(count):
            script.markup((separator if content or number else "") + begin)
            _json_call(draw, script, key=key)
            script.markup(end)

    return write


def _listed(begin: str, end: str) -> Write:
    """A JSON array of all calls between two markers."""

    def write(draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        if count:
            script.markup(begin)
            _json_array(draw, script, count)
            script.markup(end)

    return write


def _llama3(draw: Draw, script: Script, content: str, count: int) -> None:
    script.data(content)
    if count and draw(st.booleans()):
        script.markup("<|python_tag|>")
    for number in range(count):
        script.data(draw(st.sampled_from(("; ", ";", "\n", ""))) if number else "")
        _json_call(draw, script, key=draw(st.sampled_from(("parameters", "arguments"))))


def _mistral11(draw: Draw, script: Script, content: str, count: int) -> None:
    script.data(content)
    for _ in range(count):
        name, value = draw(names), draw(objects())
        text = draw(json_texts(value))
        script.markup("[TOOL_CALLS]" + name + draw(st.sampled_from(("[ARGS]", "[ARGS] ", "[CALL_ID]123456789[ARGS]", ""))))
        script.data(text, as_tokens=draw(st.booleans()))
        script.calls.append(Call(name, value, text))


def _deepseek(*, fenced: bool) -> Write:
    def write(draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        script.markup("<｜tool▁calls▁begin｜>" if count else "")
        for number in range(count):
            name, value = draw(names), draw(objects())
            text = draw(json_texts(value))
            script.markup("\n" if fenced and number else "")
            script.markup("<｜tool▁call▁begin｜>" + ("function<｜tool▁sep｜>" if fenced else "") + name)
            script.markup("\n```json\n" if fenced else "<｜tool▁sep｜>")
            script.data(text, as_tokens=draw(st.booleans()))
            script.markup(("\n```" if fenced else "") + "<｜tool▁call▁end｜>")
            script.calls.append(Call(name, value, text))
        script.markup("<｜tool▁calls▁end｜>" if count else "")

    return write


def _kimi(draw: Draw, script: Script, content: str, count: int) -> None:
    script.data(content)
    script.markup("<|tool_calls_section_begin|>" if count else "")
    for number in range(count):
        name, value = draw(names), draw(objects())
        text = draw(json_texts(value))
        script.markup(f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>")
        script.data(text, as_tokens=draw(st.booleans()))
        script.markup("<|tool_call_end|>")
        script.calls.append(Call(name, value, text))
    script.markup("<|tool_calls_section_end|>" if count else "")


def _python(begin: str = "", end: str = "") -> Write:
    def write(draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        if not count:
            return
        script.markup(begin)
        script.data("[")
        for number in range(count):
            name = draw(names)
            arguments = draw(st.dictionaries(keys.filter(str.isidentifier), values(), max_size=3))
            script.data((", " if number else "") + name + "(")
            written = ", ".join(f"{key}={_literal(draw, value)}" for key, value in arguments.items())
            script.data(written, as_tokens=draw(st.booleans()))
            script.data(")")
            script.calls.append(Call(name, arguments))
        script.data("]")
        script.markup(end)

    return write


def _literal(draw: Draw, value: Any) -> str:
    """A value as Python writes it, or may."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(draw, key)}: {_literal(draw, item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(draw, item) for item in value) + "]"
    if not isinstance(value, str):
        return repr(value)
    plain = not set(value) & set("\\\r") and '"""' not in value and not value.endswith('"')
    ways = [repr(value), ascii(value), *([f'"""{value}"""'] if plain else [])]
    return draw(st.sampled_from(ways))


def _gemma(begin: str, end: str, delimiter: str) -> Write:
    def write(draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        for _ in range(count):
            arguments = draw(st.dictionaries(keys, _gemma_values(delimiter), max_size=3))
            name = draw(names)
            script.markup(f"{begin}call:{name}")
            _gemma_value(draw, script, delimiter, arguments)
            script.markup(end)
            script.calls.append(Call(name, arguments))

    return write


def _gemma_values(delimiter: str) -> st.SearchStrategy[Any]:
    leaves = st.one_of(scalars, texts().filter(lambda text: delimiter not in text))
    nested = lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3))  # noqa: E731
    return st.recursive(leaves, nested, max_leaves=5)


def _gemma_value(draw: Draw, script: Script, delimiter: str, value: Any) -> None:
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            script.data(("," if number else "{") + key + ":")
            _gemma_value(draw, script, delimiter, item)
        script.data("}" if value else "{}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            script.data("," if number else "[")
            _gemma_value(draw, script, delimiter, item)
        script.data("]" if value else "[]")
    elif isinstance(value, str):
        script.markup(delimiter)
        script.data(value, as_tokens=draw(st.booleans()))
        script.markup(delimiter)
    else:
        script.data(json.dumps(value))


_HERMES = Layout(_tagged("<tool_call>\n", "\n</tool_call>", separator="\n"))
LAYOUTS: dict[str, Layout] = {
    "hermes": _HERMES,
    "qwen3_json": _HERMES,
    "granite4": _HERMES,
    "qwen3_coder": Layout(QWEN3_CODER),
    "qwen3_xml": Layout(QWEN3_CODER),
    "step3p5": Layout(STEP),
    "nemotron_v3": Layout(NEMOTRON),
    "seed_oss": Layout(SEED),
    "glm45": Layout(GLM45),
    "glm47": Layout(GLM47),
    "minimax_m2": Layout(MINIMAX),
    "kimi_k2": Layout(_kimi),
    "deepseek_v3": Layout(_deepseek(fenced=True)),
    "deepseek_v31": Layout(_deepseek(fenced=False)),
    "mistral": Layout(_listed("[TOOL_CALLS]", "")),
    "llama3_json": Layout(_llama3, before=False, bare="{["),
    "llama4_json": Layout(_llama3, before=False, bare="{["),
    "pythonic": Layout(_python(), before=False, bare="["),
    "llama4_pythonic": Layout(_python("<|python_start|>", "<|python_end|>"), bare="["),
    "granite": Layout(_listed("<|tool_call|>", "")),
    "granite-20b-fc": Layout(_tagged("<function_call> ", "")),
    "phi4_mini_json": Layout(_tagged("<|tool_call|>", "<|/tool_call|>")),
    "internlm": Layout(_tagged("<|action_start|><|plugin|>\n", "<|action_end|>", key="parameters")),
    "jamba": Layout(_listed("<tool_calls>", "</tool_calls>")),
    "hunyuan_a13b": Layout(_listed("<tool_calls>", "</tool_calls>"), bare="助"),
    "xlam": Layout(_listed("", ""), before=False, bare="["),
    "gemma4": Layout(_gemma("<|tool_call>", "<tool_call|>", '<|"|>')),
    "functiongemma": Layout(_gemma("<start_function_call>", "<end_function_call>", "<escape>")),
}
VARIANTS: dict[str, Layout] = {
    "hermes": Layout(_listed("\n<tool_call>\n", "\n</tool_call>")),
    "mistral": Layout(_mistral11, after=False),
    "phi4_mini_json": Layout(_listed("functools", "")),
    "xlam": Layout(_listed("<tool_call>", "</tool_call>"), bare="["),
    "granite": Layout(_listed("<tool_call>", "")),
}
"""Second ways of some formats."""
