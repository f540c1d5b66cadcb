"""Generated outputs of every family: what was written is what is read, in every chunking, whole or cut."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derender_service.parsers.families import REASONING
from tests.parsers.judge import same_json
from tests.parsers.kit import Answer, detokenizer, parse, sized
from tests.parsers.outputs import FORMATS, Output, cuts, outputs
from tests.parsers.writer import Script

EXAMPLES = settings(max_examples=15, deadline=None)
ANY_TOOLS = st.sampled_from(("hermes", "qwen3_coder", "kimi_k2", "llama3_json", "mistral"))
SETTLED_STATE = 3_000
"""Bytes of a state's JSON, where no call waits that must be complete to be read."""


def _right(answer: Answer, script: Script) -> None:
    assert answer.reasoning == script.reasoning
    assert answer.content == script.content
    assert [name for name, _ in answer.calls] == [call.name for call in script.calls]
    for (_, arguments), call in zip(answer.calls, script.calls, strict=True):
        assert call.text is None or arguments == call.text
        assert same_json(json.loads(arguments), call.value), (arguments, call.value)


def _check_whole(data: st.DataObject, output: Output) -> None:
    script = output.script
    whole = parse(script.setting, [script.ids], output.prompt)
    _right(whole.answer, script)
    for chunks in (sized(script.ids, 1), data.draw(cuts(script.ids))):
        reading = parse(script.setting, chunks, output.prompt)
        assert reading.answer == whole.answer
        assert max(reading.sizes) < SETTLED_STATE


def _check_cut(data: st.DataObject, output: Output) -> None:
    """Nothing that was sent is taken back, nor would be; markup shows only where it may be text, or where no name came of it."""
    script = output.script
    ids = script.ids[: data.draw(st.integers(0, len(script.ids)))]
    cut = parse(script.setting, [ids], output.prompt).answer
    for chunks in (sized(ids, 1), data.draw(cuts(ids))):
        assert parse(script.setting, chunks, output.prompt).answer == cut
    assert len(cut.calls) <= len(script.calls)
    full = parse(script.setting, [script.ids], output.prompt).answer
    for (name, arguments), (full_name, full_arguments) in zip(cut.calls, full.calls, strict=False):
        assert name == full_name
        assert full_arguments.startswith(arguments)
    text = detokenizer(script.setting.tokenizer).whole(ids, keep_special=True)
    waiting = len(full.calls) > len(cut.calls)
    for channel in ("reasoning", "content"):
        own, right = getattr(cut, channel), getattr(full, channel)
        assert right.startswith(own) or _released(own, right, text, script, waiting=waiting), (channel, own, right)


def _released(own: str, right: str, text: str, script: Script, *, waiting: bool) -> bool:
    """Whether all that `own` has beyond `right` is the output's end: the beginning of a marker, or with `waiting` a call of which
    the name has not come."""
    shared = next(at for at in range(len(own) + 1) if own[at:] == "" or own[at] != right[at : at + 1])
    steps = [step for region in script.setting.grammar.regions.values() for step in region.steps]
    for at in range(shared, -1, -1):
        tail = own[at:]
        if not text.endswith(tail):
            return False
        if waiting or any(f"{step.marker.before}{step.marker.text}".endswith(tail) for step in steps):
            return True
        if any(step.marker.text.startswith(tail.lstrip()) or tail.lstrip().startswith(step.marker.text) for step in steps):
            return True
    return False


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@EXAMPLES
def test_a_tool_format_is_read_as_it_was_written(tools: str, data: st.DataObject) -> None:
    _check_whole(data, data.draw(outputs(tools)))


@pytest.mark.parametrize("reasoning", sorted(REASONING))
@given(data=st.data())
@EXAMPLES
def test_a_reasoning_format_is_read_as_it_was_written(reasoning: str, data: st.DataObject) -> None:
    _check_whole(data, data.draw(outputs(data.draw(ANY_TOOLS), reasoning)))


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@EXAMPLES
def test_a_cut_call_takes_nothing_back(tools: str, data: st.DataObject) -> None:
    _check_cut(data, data.draw(outputs(tools)))


@pytest.mark.parametrize("reasoning", sorted(REASONING))
@given(data=st.data())
@EXAMPLES
def test_cut_reasoning_takes_nothing_back(reasoning: str, data: st.DataObject) -> None:
    _check_cut(data, data.draw(outputs(data.draw(ANY_TOOLS), reasoning)))
