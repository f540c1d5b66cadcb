"""How templates write calls whose parameters stand each in an element of its own, as text."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from derender_service.parsers.codecs.parameter_types import kinds_of
from tests.parsers.typed_values import as_python, parameters, schemas
from tests.parsers.values import JsonObject, names
from tests.parsers.writer import Call, Script

Draw = st.DrawFn


@dataclass(frozen=True)
class Elements:
    """Markup around typed parameters: of the whole, of each call (around its name), of each key and each value."""

    whole: tuple[str, str] = ("", "")
    separator: str = ""
    call: tuple[str, str, str] = ("", "", "")
    key: tuple[str, str] = ("", "")
    value: tuple[str, str] = ("", "")
    end: str = ""
    """What no value can hold as a token."""
    never: str = "(?!)"
    """What no value can hold at all: where markers are text, two in a row tell that it has ended."""
    written: Callable[[Any], str] | None = None

    def __call__(self, draw: Draw, script: Script, content: str, count: int) -> None:
        script.data(content)
        script.markup((self.separator if content else "") + self.whole[0] if count and self.whole[0] else "")
        tools: list[tuple[str, JsonObject]] = []
        for number in range(count):
            name = draw(names.filter(lambda name: name not in dict(tools)))
            drawn = draw(parameters(self.written, lambda text: re.search(self.never, text) is None))
            separator = self.separator if not self.whole[0] and (content or number) else ""
            script.markup(separator + self.call[0] + name + self.call[1])
            for parameter in drawn:
                script.markup(self.key[0] + parameter.key + self.key[1] + self.value[0])
                script.data(parameter.text, as_tokens=draw(st.booleans()) and self.end not in parameter.text)
                script.markup(self.value[1])
            script.markup(self.call[2])
            tools.append((name, draw(schemas(drawn))))
            script.calls.append(Call(name, {parameter.key: parameter.value for parameter in drawn}))
        script.markup(self.whole[1] if count else "")
        types = script.setting.types
        assert isinstance(types, dict)
        types |= kinds_of(tools)


_QWEN_NEVER = r"</parameter>\s*<(parameter=|/function>|/?tool_call>)|</function>\s*</?tool_call>"
_GLM_END, _GLM_NEVER = "</arg_value>", r"</arg_value>\s*<(arg_key>|/?tool_call>)"
_MINIMAX_NEVER = r"</parameter>\s*<(parameter name=|/?invoke|/minimax:tool_call>)|</invoke>\s*<(invoke|/minimax:tool_call>)"
_QWEN = ("<tool_call>\n<function=", ">\n", "</function>\n</tool_call>")
QWEN3_CODER = Elements(
    separator="\n\n", call=_QWEN, key=("<parameter=", ">"), value=("\n", "\n</parameter>\n"), end="</parameter>", never=_QWEN_NEVER
)
NEMOTRON = replace(QWEN3_CODER, separator="\n")
STEP = replace(QWEN3_CODER, separator="")
SEED = Elements(
    separator="\n\n",
    call=("<seed:tool_call>\n<function=", ">\n", "</function>\n</seed:tool_call>"),
    key=("<parameter=", ">"), value=("", "</parameter>\n"), end="</parameter>",
    never=_QWEN_NEVER.replace("tool_call", "seed:tool_call"), written=as_python,
)  # fmt: skip
GLM45 = Elements(
    separator="\n", call=("<tool_call>", "\n", "</tool_call>"), key=("<arg_key>", "</arg_key>\n"),
    value=("<arg_value>", "</arg_value>\n"), end=_GLM_END, never=_GLM_NEVER,
)  # fmt: skip
GLM47 = Elements(
    call=("<tool_call>", "", "</tool_call>"),
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
    end=_GLM_END,
    never=_GLM_NEVER,
)
MINIMAX = Elements(
    whole=("<minimax:tool_call>\n", "</minimax:tool_call>"), separator="\n", call=('<invoke name="', '">\n', "</invoke>\n"),
    key=('<parameter name="', '">'), value=("", "</parameter>\n"), end="</parameter>", never=_MINIMAX_NEVER,
)  # fmt: skip
