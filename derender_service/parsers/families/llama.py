"""Llama 3 and 4: a call is the whole answer, as JSON objects or as a Python list, with no marker or an optional one."""

from derender_service.parsers.codecs.json_call import JsonCall, JsonCalls
from derender_service.parsers.codecs.python_calls import PythonCalls
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Calls, Gap, Peek
from derender_service.parsers.run import CONTENT

_TAG = Marker("<|python_tag|>")
_OBJECT, _ARRAY = Step(Marker("{"), "object", keep=True), Step(Marker("["), "array", keep=True)
_TAGGED = Step(Marker("{"), "tagged object", keep=True), Step(Marker("["), "tagged array", keep=True)

LLAMA3_JSON = ToolFormat(
    "llama3_json",
    entry=(Step(_TAG, "tagged"),),
    bare=(_OBJECT, _ARRAY),
    regions=(
        Peek(name="tagged", steps=_TAGGED, then=CONTENT),
        Calls(name="tagged object", reader_type=JsonCall, then="more"),
        Calls(name="tagged array", reader_type=JsonCalls, then=CONTENT),
        Calls(name="object", reader_type=JsonCall, options={"sure": True}, then="more"),
        Calls(name="array", reader_type=JsonCalls, options={"sure": True}, then=CONTENT),
        Gap(name="more", steps=(Step(Marker(";"), "next"), Step(Marker(","), "next"), Step(_TAG, "tagged"), _OBJECT)),
        Peek(name="next", steps=(_OBJECT, Step(_TAG, "tagged")), then=CONTENT),
    ),
    source="Llama 3.1's and 3.2's prompt format: {\"name\": …, \"parameters\": …}, perhaps after <|python_tag|>; several by ';'",
)


def _pythonic(name: str, source: str) -> ToolFormat:
    start, end = Marker("<|python_start|>"), Marker("<|python_end|>")
    calls = Step(Marker("["), "calls", keep=True)
    return ToolFormat(
        name,
        entry=(Step(start, "started"),),
        bare=(calls,),
        regions=(
            Peek(name="started", steps=(calls,), then=CONTENT),
            Calls(name="calls", reader_type=PythonCalls, steps=(Step(end, CONTENT),), then="ended"),
            Peek(name="ended", steps=(Step(end, CONTENT),), then=CONTENT),
        ),
        source=source,
    )


PYTHONIC = _pythonic("pythonic", "Llama 3.2's and ToolACE's prompt format: [name(key=value, …), …] as the whole answer")
LLAMA4_PYTHONIC = _pythonic(
    "llama4_pythonic", "Llama 4's prompt format: the same, perhaps between <|python_start|> and <|python_end|>"
)
