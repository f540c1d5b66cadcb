"""Gemma 4 and FunctionGemma: `call:NAME{…}` between two markers, strings between delimiters."""

from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Delimited, Gap
from derender_service.parsers.run import CONTENT


def _gemma(name: str, begin: str, end: str, delimiter: str, response: str, *, source: str) -> ToolFormat:
    start, out = Step(Marker(begin), "call"), Step(Marker(end), CONTENT)
    steps = (out, start, Step(Marker(response), CONTENT))
    return ToolFormat(
        name,
        entry=(start,),
        loose=(Step(Marker(response), CONTENT, stray=True),),
        regions=(
            Delimited(name="call", steps=steps, delimiter=Marker(delimiter), then="closing"),
            Gap(name="closing", steps=steps, junk="})"),
        ),
        source=source,
    )


GEMMA4 = _gemma(
    "gemma4", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>",
    source="Gemma 4's template: '<|tool_call>call:' + name + '{' + key + ':' + value … '}<tool_call|>'",
)  # fmt: skip
FUNCTIONGEMMA = _gemma(
    "functiongemma", "<start_function_call>", "<end_function_call>", "<escape>", "<start_function_response>",
    source="FunctionGemma's formatting guide: as Gemma 4, with <escape> around strings (its template was not found)",
)  # fmt: skip
