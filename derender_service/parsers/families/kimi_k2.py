"""Kimi K2: an id that holds the name, then JSON."""

import re

from derender_service.parsers.events import CallStart
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.names import is_name
from derender_service.parsers.regions import Body, Gap, Name
from derender_service.parsers.run import CONTENT

_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


def _call(text: str) -> CallStart | None:
    """`functions.get_weather:0` is the id, which K2's template wants back, and `get_weather` the name."""
    match = _ID.fullmatch(text)
    return CallStart(match[1], text) if match and is_name(match[1]) else None


_SECTIONS = tuple(Marker(f"<|tool_call{s}_section_begin|>") for s in ("s", ""))
_SECTION_ENDS = tuple(Marker(f"<|tool_call{s}_section_end|>") for s in ("s", ""))
_CALL, _CALL_END, _ARGUMENTS = Marker("<|tool_call_begin|>"), Marker("<|tool_call_end|>"), Marker("<|tool_call_argument_begin|>")
_OUT = tuple(Step(end, CONTENT) for end in _SECTION_ENDS)
_DONE = Step(_CALL_END, "section", closes=True)

KIMI_K2 = ToolFormat(
    "kimi_k2",
    entry=(*(Step(section, "section") for section in _SECTIONS), Step(_CALL, "name")),
    regions=(
        Gap(name="section", steps=(Step(_CALL, "name"), *_OUT)),
        Name(name="name", read=_call, steps=(Step(_ARGUMENTS, "arguments"), _DONE, *_OUT)),
        Body(name="arguments", steps=(_DONE, Step(_CALL, "name"), *_OUT), then="closing"),
        Gap(name="closing", steps=(_DONE, Step(_CALL, "name"), *_OUT), junk="}"),
    ),
    ids="own",
    source="Kimi-K2's tool calling guide: section, call_begin, functions.NAME:INDEX, argument_begin, JSON, call_end",
)
