"""Qwen3-Coder, Qwen 3.5, Step 3.5, Nemotron 3; Seed-OSS with other outer markers: parameters as XML-like elements."""

from derender_service.parsers.codecs.json_call import JsonCall
from derender_service.parsers.formats import ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Between, Body, Calls, Dropped, Gap, Key, Name, Value
from derender_service.parsers.run import CONTENT


def _functions(name: str, tag: str, *, before: str, line: str, source: str) -> ToolFormat:
    """`before`: the white space that the template writes before a call; `line`: between a parameter's tags and its value."""
    begin, end = Marker(f"<{tag}>", before=before, after="\n"), Marker(f"</{tag}>")
    function, function_end = Marker("<function="), Marker("</function>", before=line)
    parameter, parameter_end = Marker("<parameter="), Marker("</parameter>", before=line)
    json = Step(Marker("{"), "json", keep=True)
    out = (Step(end, CONTENT), Step(begin, "begin"))
    following = (Step(parameter, "key"), Step(function_end, "closing"), *out)
    return ToolFormat(
        name,
        entry=(Step(begin, "begin"),),
        loose=(Step(function, "name"),),
        regions=(
            Gap(name="begin", steps=(Step(function, "name"), json, *out)),
            Name(name="name", steps=(Step(Marker(">"), "first"), *out)),
            Between(name="first", steps=(Step(Marker("{"), "object", keep=True), *following)),
            Between(name="parameters", steps=following),
            Key(name="key", steps=(Step(Marker(">", after=line), "value"),)),
            Value(
                name="value",
                steps=(Step(parameter_end, "parameters"), Step(function_end, "closing")),
                followed={parameter_end: (parameter, function_end, begin, end), function_end: (begin, end)},
            ),
            Body(name="object", steps=(Step(function_end, "closing"), *out), then="rest"),
            Dropped(name="rest", steps=(Step(function_end, "closing"), *out)),
            Gap(name="closing", steps=(Step(function, "name"), *out)),
            Calls(name="json", steps=out, reader_type=JsonCall, then="closing"),
        ),
        typed=True,
        source=source,
    )


QWEN3_CODER = _functions(
    "qwen3_coder", "tool_call", before="\n\n", line="\n",
    source="Qwen3-Coder's template: '<function=NAME>\\n', '<parameter=KEY>\\nVALUE\\n</parameter>\\n' for each, '</function>\\n'",
)  # fmt: skip
NEMOTRON_V3 = _functions(
    "nemotron_v3", "tool_call", before="\n", line="\n",
    source="Nemotron 3's template: as Qwen3-Coder's, with one line break before a call",
)  # fmt: skip
STEP3P5 = _functions(
    "step3p5", "tool_call", before="", line="\n",
    source="Step-3.5's template: as Qwen3-Coder's, with nothing between content and calls",
)  # fmt: skip
SEED_OSS = _functions(
    "seed_oss", "seed:tool_call", before="\n\n", line="",
    source="Seed-OSS' template: as Qwen3-Coder's, but values stand right between their tags",
)  # fmt: skip
