"""Families that write calls as JSON, alone or in an array, after some marker: Granite 3, Phi-4-mini, InternLM, Jamba, xLAM,
Hunyuan."""

from derender_service.parsers.codecs.json_call import JsonCall, JsonCalls
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Calls, Gap, Peek
from derender_service.parsers.run import CONTENT

_ARRAY, _OBJECT = Step(Marker("["), "array", keep=True), Step(Marker("{"), "object", keep=True)
_JUNK = "}],;"

_GRANITE = Marker("<|tool_call|>"), Marker("<tool_call>")
_GRANITE_END = Step(Marker("</tool_call>"), CONTENT)
GRANITE = ToolFormat(
    "granite",
    entry=tuple(Step(marker, "calls") for marker in _GRANITE),
    regions=(
        Peek(name="calls", steps=(_ARRAY, _OBJECT), then=CONTENT),
        Calls(name="array", reader_type=JsonCalls, then="closing"),
        Calls(name="object", reader_type=JsonCall, then="closing"),
        Peek(name="closing", steps=(_GRANITE_END, *(Step(marker, "calls") for marker in _GRANITE)), then=CONTENT),
    ),
    source="Granite 3.x: '<|tool_call|>' and a JSON list; 3.1 writes '<tool_call>' as text",
)

_FUNCTION = Marker("<function_call>", after=" ")
GRANITE_20B_FC = ToolFormat(
    "granite-20b-fc",
    entry=(Step(_FUNCTION, "call"),),
    regions=(
        Calls(name="call", steps=(Step(_FUNCTION, "call"),), reader_type=JsonCall, then="closing"),
        Peek(name="closing", steps=(Step(_FUNCTION, "call"),), then=CONTENT),
    ),
    source="granite-20b-functioncalling's prompt: '<function_call> ' and a JSON object, for each call",
)

_PHI, _PHI_END = Marker("<|tool_call|>"), Marker("<|/tool_call|>")
PHI4_MINI_JSON = ToolFormat(
    "phi4_mini_json",
    entry=(Step(Marker("functools["), "list"), Step(_PHI, "calls")),
    regions=(
        Calls(name="list", reader_type=JsonCalls, options={"opened": True}, then=CONTENT),
        Peek(name="calls", steps=(_ARRAY, _OBJECT), then=CONTENT),
        Calls(name="array", reader_type=JsonCalls, steps=(Step(_PHI_END, CONTENT),), then="closing"),
        Calls(name="object", reader_type=JsonCall, steps=(Step(_PHI_END, CONTENT),), then="closing"),
        Peek(name="closing", steps=(Step(_PHI_END, CONTENT), Step(_PHI, "calls")), then=CONTENT),
    ),
    source="Phi-4-mini: 'functools[…]' as its prompt asks, or JSON between <|tool_call|> and <|/tool_call|>",
)

_ACTION, _PLUGIN, _ACTION_END = Marker("<|action_start|>"), Marker("<|plugin|>", after="\n"), Marker("<|action_end|>")
INTERNLM = ToolFormat(
    "internlm",
    entry=(Step(_ACTION, "kind"),),
    regions=(
        Gap(name="kind", steps=(Step(_PLUGIN, "call"), Step(_ACTION_END, CONTENT))),
        Calls(name="call", steps=(Step(_ACTION_END, CONTENT),), reader_type=JsonCall, then="closing"),
        Gap(name="closing", steps=(Step(_ACTION_END, CONTENT), Step(_ACTION, "kind")), junk=_JUNK),
    ),
    source='InternLM2\'s chat format: <|action_start|><|plugin|>\\n{"name": …, "parameters": …}<|action_end|>',
)


def _tool_calls(name: str, *, bare: tuple[Step, ...] = (), source: str) -> ToolFormat:
    begin, end = Marker("<tool_calls>"), Marker("</tool_calls>")
    return ToolFormat(
        name,
        entry=(Step(begin, "calls"),),
        bare=bare,
        regions=(
            Peek(name="calls", steps=(_ARRAY, _OBJECT), then=CONTENT),
            Calls(name="array", reader_type=JsonCalls, steps=(Step(end, CONTENT),), then="closing"),
            Calls(name="object", reader_type=JsonCall, steps=(Step(end, CONTENT),), then="closing"),
            Gap(name="closing", steps=(Step(end, CONTENT), Step(begin, "calls")), junk=_JUNK),
        ),
        source=source,
    )


JAMBA = _tool_calls("jamba", source="Jamba 1.5's and later templates: '<tool_calls>[\\n    {…}\\n]</tool_calls>'")
HUNYUAN_A13B = _tool_calls(
    "hunyuan_a13b",
    bare=(Step(Marker("助手："), CONTENT),),
    source="Hunyuan-A13B: '<tool_calls>[…]</tool_calls>'; an answer without calls begins '助手：' where tools were offered",
)

_FENCE = Marker("```")
_FENCED = Step(Marker("["), "fenced array", keep=True)
_TAG, _TAG_END, _CALLS = Marker("<tool_call>"), Marker("</tool_call>"), Marker("[TOOL_CALLS]")
XLAM = ToolFormat(
    "xlam",
    entry=(Step(_TAG, "tagged"), Step(_CALLS, "marked")),
    loose=(Step(_FENCE, "fence"),),
    bare=(_ARRAY,),
    regions=(
        Peek(name="marked", steps=(_ARRAY,), then=CONTENT),
        Peek(name="tagged", steps=(Step(Marker("["), "tagged array", keep=True), _OBJECT), then=CONTENT),
        Peek(name="fence", steps=(_FENCED, Step(Marker("json"), "fenced")), then=CONTENT),
        Peek(name="fenced", steps=(_FENCED,), then=CONTENT),
        Calls(name="array", reader_type=JsonCalls, options={"sure": True}, then=CONTENT),
        Calls(name="tagged array", reader_type=JsonCalls, steps=(Step(_TAG_END, CONTENT),), then="tag end"),
        Calls(name="object", reader_type=JsonCall, steps=(Step(_TAG_END, CONTENT),), then="tag end"),
        Calls(name="fenced array", reader_type=JsonCalls, options={"sure": True}, then="fence end"),
        Gap(name="tag end", steps=(Step(_TAG_END, CONTENT), Step(_TAG, "tagged")), junk=_JUNK),
        Gap(name="fence end", steps=(Step(_FENCE, CONTENT),)),
    ),
    source="xLAM-2's prompt asks for a bare JSON list; models also fence it, or use <tool_call> or [TOOL_CALLS]",
)
