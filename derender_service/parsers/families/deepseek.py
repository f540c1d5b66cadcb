"""DeepSeek V3 and R1 (a fenced JSON object after the name), and V3.1 (the JSON alone)."""

from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Body, Gap, Label, Name
from derender_service.parsers.run import CONTENT

_CALLS, _CALLS_END = Marker("<｜tool▁calls▁begin｜>"), Marker("<｜tool▁calls▁end｜>")
_CALL, _CALL_END, _SEP = Marker("<｜tool▁call▁begin｜>"), Marker("<｜tool▁call▁end｜>"), Marker("<｜tool▁sep｜>")
_FENCE = Marker("```")
_FENCE_ENDS = (Step(_FENCE, "fence"), Step(Marker("\n```"), "fence"))
"""A fence ends malformed arguments too, which their brackets do not."""
_OUT = (Step(_CALL_END, "section", closes=True), Step(_CALLS_END, CONTENT))

DEEPSEEK_V3 = ToolFormat(
    "deepseek_v3",
    entry=(Step(_CALLS, "section"), Step(_CALL, "type")),
    regions=(
        Gap(name="section", steps=(Step(_CALL, "type"), Step(_CALLS_END, CONTENT))),
        Label(name="type", steps=(Step(_SEP, "name"), *_OUT)),
        Name(name="name", steps=(Step(Marker("```json"), "arguments"), Step(Marker("{"), "arguments", keep=True), *_OUT)),
        Body(name="arguments", steps=(*_FENCE_ENDS, *_OUT, Step(_CALL, "type")), then="fence"),
        Gap(name="fence", steps=(Step(_FENCE, "fence", closes=True), Step(_CALL, "type"), *_OUT), junk="}"),
    ),
    source="V3's template: call_begin + 'function' + sep + name + '\\n```json\\n' + arguments + '\\n```' + call_end",
)
DEEPSEEK_V31 = ToolFormat(
    "deepseek_v31",
    entry=(Step(_CALLS, "section"), Step(_CALL, "name")),
    regions=(
        Gap(name="section", steps=(Step(_CALL, "name"), Step(_CALLS_END, CONTENT))),
        Name(name="name", steps=(Step(_SEP, "arguments"), *_OUT)),
        Body(name="arguments", steps=(*_OUT, Step(_CALL, "name")), then="closing"),
        Gap(name="closing", steps=(Step(_CALL, "name"), *_OUT), junk="}"),
    ),
    source="V3.1's template: call_begin + name + sep + arguments + call_end, without white space",
)
