"""Mistral: a JSON array after [TOOL_CALLS], or since v11 name[ARGS]{…} after each [TOOL_CALLS]."""

from derender_service.parsers.codecs.json_call import JsonCall, JsonCalls
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Body, Calls, Dropped, Name, Peek
from derender_service.parsers.run import CONTENT

_CALLS, _ARGS, _CALL_ID = Marker("[TOOL_CALLS]"), Marker("[ARGS]"), Marker("[CALL_ID]")
_AGAIN = Step(_CALLS, "calls")
_BODY = (Step(_ARGS, "arguments"), Step(Marker("{"), "arguments", keep=True))

MISTRAL = ToolFormat(
    "mistral",
    entry=(_AGAIN,),
    regions=(
        Peek(name="calls", steps=(Step(Marker("["), "array", keep=True), Step(Marker("{"), "object", keep=True)), then="name"),
        Calls(name="array", reader_type=JsonCalls, then=CONTENT),
        Calls(name="object", reader_type=JsonCall, then=CONTENT),
        Name(name="name", steps=(*_BODY, Step(_CALL_ID, "id"), _AGAIN)),
        Dropped(name="id", steps=(*_BODY, _AGAIN)),
        Body(name="arguments", steps=(_AGAIN,), then=CONTENT),
    ),
    ids="nine",
    source="mistral_common's instruct tokenizers: a JSON list up to v7, [CALL_ID] in v11, name [ARGS] JSON since",
)
