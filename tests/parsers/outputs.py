"""Whole outputs at random: reasoning, content, calls and content again, as some pair of families writes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from derender_service.parsers.families import REASONING, TOOLS
from derender_service.parsers.formats import ReasoningFormat
from tests.parsers.kit import Setting, control_ids, encode
from tests.parsers.layouts import LAYOUTS, VARIANTS, Layout
from tests.parsers.values import texts
from tests.parsers.writer import Script

TOKENIZERS = {
    "hermes": "qwen3", "qwen3_coder": "qwen3", "glm45": "qwen3_glm", "glm47": "qwen3_glm", "kimi_k2": "qwen3_kimi",
    "minimax_m2": "qwen3_minimax", "mistral": "qwen3_mistral11", "deepseek_v3": "deepseek_v3", "deepseek_v31": "deepseek_v3_think",
    "granite": "smollm2_granite", "llama3_json": "llama3_1_pytag",
}  # fmt: skip
"""Of the formats whose markers are tokens of a tokenizer of their own; the others are read with `qwen3_marked`."""
FORMATS = sorted(name for name, format in TOOLS.items() if format.name == name)
"""The tool formats that differ, each under its own name."""
WITHOUT_TOKENS = "smollm2"
"""Here every marker is text."""


@dataclass(frozen=True)
class Output:
    """`prompt`: the ids before it. `script`: the ids, and the right answer."""

    prompt: list[int]
    script: Script


@st.composite
def outputs(draw: st.DrawFn, tools: str, reasoning: str | None = None, *, tokenizer: str | None = None) -> Output:
    """`reasoning` and `tokenizer` by chance where they are not given."""
    name = tokenizer or draw(st.sampled_from((TOKENIZERS.get(tools, "qwen3_marked"), "qwen3_marked", WITHOUT_TOKENS)))
    thinking = reasoning or draw(st.sampled_from((None, *REASONING)))
    setting = Setting(name, thinking, tools, "auto", {})
    script = Script(setting)
    layout = draw(st.sampled_from([table[tools] for table in (LAYOUTS, VARIANTS) if tools in table]))
    begin = [min(control_ids(name) - setting.grammar.marks.keys()), *encode(name, "assistant\n")]
    prompt = begin + (_reasoning(draw, script, setting.reasoning_format) if setting.reasoning_format else [])
    _answer(draw, script, layout)
    return Output(prompt, script)


def _reasoning(draw: st.DrawFn, script: Script, format: ReasoningFormat) -> list[int]:
    """Writes reasoning, or none; returns what the prompt has of it."""
    name = script.setting.tokenizer
    way = draw(st.sampled_from(("written", "opened", "closed", "none")))
    if way == "none":
        return []
    start, end = draw(st.sampled_from(list(zip(format.starts, format.ends, strict=True))))
    label = format.label.text + format.label.after if format.label else ""
    opening, ending = start.text + start.after + label, end.before + end.text + end.after
    if way == "closed":
        return encode(name, opening + ending)
    reasoning = draw(texts().filter(script.can_say))
    if way == "written":
        script.markup(start.before + opening)
    script.data(reasoning)
    script.markup(ending)
    script.reasoning = reasoning
    return encode(name, opening) if way == "opened" else []


def _answer(draw: st.DrawFn, script: Script, layout: Layout) -> None:
    count = draw(st.integers(0, layout.most))
    reasoning = script.setting.reasoning_format
    said = texts().filter(script.can_say).filter(lambda text: not layout.bare or text.strip()[:1] not in layout.bare)
    content = draw(said) if layout.before or not count else ""
    if not count and reasoning and reasoning.wrap and script.ids and script.reasoning and draw(st.booleans()):
        begin, end = reasoning.wrap
        script.markup(begin.text + begin.after)
        script.data(content)
        script.markup(end.before + end.text)
    else:
        layout.write(draw, script, content, count)
    script.content += content
    if count and layout.after:
        tail = " Done" + draw(said)
        if script.can_say(tail):
            script.data(tail)
            script.content += tail


@st.composite
def cuts(draw: st.DrawFn, ids: Sequence[int]) -> list[Sequence[int]]:
    """A split of the ids into chunks, some of them empty."""
    borders = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=12)))
    return [ids[a:b] for a, b in zip([0, *borders], [*borders, len(ids)], strict=True)]


def cut_at(output: Output, at: int) -> Output:
    """The same output, ended early. What it says then is for the reader to tell."""
    script = output.script
    return replace(output, script=replace(script, ids=script.ids[: at % (len(script.ids) + 1)]))
