"""GLM 4.5 to 5: the name, then keys and values between markers."""

from dataclasses import replace

from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Between, Key, Name, Value
from derender_service.parsers.run import CONTENT

_CALL, _CALL_END = Marker("<tool_call>", before="\n"), Marker("</tool_call>")
_KEY, _KEY_END = Marker("<arg_key>"), Marker("</arg_key>")
_VALUE, _VALUE_END = Marker("<arg_value>"), Marker("</arg_value>")
_OUT = (Step(_CALL_END, CONTENT), Step(_CALL, "name"))

GLM45 = ToolFormat(
    "glm45",
    entry=(Step(_CALL, "name"),),
    regions=(
        Name(name="name", steps=(Step(Marker("\n"), "parameters"), Step(_KEY, "key"), *_OUT)),
        Between(name="parameters", steps=(Step(_KEY, "key"), *_OUT)),
        Key(name="key", steps=(Step(_KEY_END, "pair"), Step(_VALUE, "value"))),
        Between(name="pair", steps=(Step(_VALUE, "value"), Step(_KEY, "key"), *_OUT)),
        Value(name="value", steps=(Step(_VALUE_END, "parameters"),)),
    ),
    typed=True,
    source="GLM-4.5's template: '\\n<tool_call>' + name, lines of <arg_key>, <arg_value>, '</tool_call>'; values verbatim",
)
GLM47 = replace(GLM45, name="glm47", source="GLM-4.7's template: the same without line breaks")
