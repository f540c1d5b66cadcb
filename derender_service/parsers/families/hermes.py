"""Hermes, Qwen 2.5 and 3, Granite 4: a JSON object between two markers."""

from derender_service.parsers.codecs.json_call import JsonCall, JsonCalls
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Calls, Gap, Peek
from derender_service.parsers.run import CONTENT

OPEN = Marker("<tool_call>", before="\n", after="\n")
CLOSE = Marker("</tool_call>")
_STEPS = (Step(CLOSE, CONTENT), Step(OPEN, "call"))
_OBJECT, _ARRAY = Step(Marker("{"), "object", keep=True), Step(Marker("["), "array", keep=True)

HERMES = ToolFormat(
    "hermes",
    entry=(Step(OPEN, "call"),),
    regions=(
        Peek(name="call", steps=(_OBJECT, _ARRAY, *_STEPS), then=CONTENT),
        Calls(name="object", steps=_STEPS, reader_type=JsonCall, then="closing"),
        Calls(name="array", steps=_STEPS, reader_type=JsonCalls, then="closing"),
        Gap(name="closing", steps=_STEPS, junk="}],;"),
    ),
    source="Qwen3's template: '\\n<tool_call>\\n{\"name\": …, \"arguments\": …}\\n</tool_call>'; Granite 4.0's is the same",
)
