"""GLM 4.5 to 5: the name, then keys and values between markers."""

from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Between, Body, Dropped, Key, Name, Value
from derender_service.parsers.run import CONTENT


def _glm(name: str, *, before: str, source: str) -> ToolFormat:
    """`before`: the white space that the template writes before a call."""
    call, call_end = Marker("<tool_call>", before=before), Marker("</tool_call>")
    key, key_end = Marker("<arg_key>"), Marker("</arg_key>")
    value, value_end = Marker("<arg_value>"), Marker("</arg_value>")
    out = (Step(call_end, CONTENT), Step(call, "name"))
    return ToolFormat(
        name,
        entry=(Step(call, "name"),),
        regions=(
            Name(name="name", steps=(Step(Marker("\n"), "first"), Step(key, "key"), *out)),
            Between(name="first", steps=(Step(Marker("{"), "object", keep=True), Step(key, "key"), *out)),
            Between(name="parameters", steps=(Step(key, "key"), *out)),
            Key(name="key", steps=(Step(key_end, "pair"), Step(value, "value"))),
            Between(name="pair", steps=(Step(value, "value"), Step(key, "key"), *out)),
            Value(name="value", steps=(Step(value_end, "parameters"),), followed={value_end: (key, call_end, call)}),
            Body(name="object", steps=out, then="rest"),
            Dropped(name="rest", steps=out),
        ),
        typed=True,
        source=source,
    )


GLM45 = _glm(
    "glm45", before="\n",
    source="GLM-4.5's template: '\\n<tool_call>' + name, lines of <arg_key>, <arg_value>, '</tool_call>'; values verbatim",
)  # fmt: skip
GLM47 = _glm("glm47", before="", source="GLM-4.7's template: the same without line breaks")
