"""Qwen3-Coder, Qwen 3.5, Step 3.5, Nemotron 3; Seed-OSS with other outer markers: parameters as XML-like elements."""

from derender_service.parsers.codecs.json_call import JsonCall
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Between, Calls, Gap, Key, Name, Value
from derender_service.parsers.run import CONTENT


def _functions(name: str, outer: tuple[Marker, Marker], *, line: str, source: str) -> ToolFormat:
    """`line`: the white space that the template writes between a parameter's tags and its value."""
    begin, end = outer
    function, function_end = Marker("<function="), Marker("</function>")
    parameter, parameter_end = Marker("<parameter="), Marker("</parameter>", before=line)
    out = (Step(end, CONTENT), Step(begin, "begin"))
    return ToolFormat(
        name,
        entry=(Step(begin, "begin"),),
        loose=(Step(function, "name"),),
        regions=(
            Gap(name="begin", steps=(Step(function, "name"), Step(Marker("{"), "json", keep=True), *out)),
            Name(name="name", steps=(Step(Marker(">"), "parameters"), *out)),
            Between(name="parameters", steps=(Step(parameter, "key"), Step(function_end, "closing"), *out)),
            Key(name="key", steps=(Step(Marker(">", after=line), "value"),)),
            Value(name="value", steps=(Step(parameter_end, "parameters"),)),
            Gap(name="closing", steps=(Step(function, "name"), *out)),
            Calls(name="json", steps=out, reader_type=JsonCall, then="closing"),
        ),
        typed=True,
        source=source,
    )


QWEN3_CODER = _functions(
    "qwen3_coder",
    (Marker("<tool_call>", before="\n", after="\n"), Marker("</tool_call>")),
    line="\n",
    source="Qwen3-Coder's template: '<function=NAME>\\n', '<parameter=KEY>\\nVALUE\\n</parameter>\\n' for each, '</function>\\n'",
)
SEED_OSS = _functions(
    "seed_oss",
    (Marker("<seed:tool_call>", before="\n\n", after="\n"), Marker("</seed:tool_call>")),
    line="",
    source="Seed-OSS' template: as Qwen3-Coder's, but values stand right between their tags",
)
