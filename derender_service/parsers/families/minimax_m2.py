"""MiniMax M2: invoke elements with typed parameters."""

from derender_service.parsers.events import CallStart
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.names import is_name
from derender_service.parsers.regions import Between, Gap, Key, Name, Value
from derender_service.parsers.run import CONTENT

_QUOTES = "\"'"


def _quoted(text: str) -> CallStart | None:
    name = text.strip(_QUOTES)
    return CallStart(name) if is_name(name) else None


_CALLS, _CALLS_END = Marker("<minimax:tool_call>", before="\n", after="\n"), Marker("</minimax:tool_call>")
_INVOKE, _INVOKE_END = Marker("<invoke name="), Marker("</invoke>")
_PARAMETER, _PARAMETER_END = Marker("<parameter name="), Marker("</parameter>")
_OUT = Step(_CALLS_END, CONTENT)

MINIMAX_M2 = ToolFormat(
    "minimax_m2",
    entry=(Step(_CALLS, "section"),),
    loose=(Step(_INVOKE, "name"),),
    regions=(
        Gap(name="section", steps=(Step(_INVOKE, "name"), _OUT)),
        Name(name="name", read=_quoted, steps=(Step(Marker(">"), "parameters"), _OUT)),
        Between(name="parameters", steps=(Step(_PARAMETER, "key"), Step(_INVOKE_END, "section"), Step(_INVOKE, "name"), _OUT)),
        Key(name="key", quotes=_QUOTES, steps=(Step(Marker(">"), "value"),)),
        Value(
            name="value",
            steps=(Step(_PARAMETER_END, "parameters"), Step(_INVOKE_END, "section")),
            followed={_PARAMETER_END: (_PARAMETER, _INVOKE_END, _INVOKE, _CALLS_END), _INVOKE_END: (_INVOKE, _CALLS_END)},
        ),
    ),
    typed=True,
    source='MiniMax-M2\'s template: <minimax:tool_call>, <invoke name="…">, <parameter name="…">value</parameter>; values verbatim',
)
