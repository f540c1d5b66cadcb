"""Law L3: what a chunk costs and what its state weighs do not grow with the stream. Counted, not timed."""

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derender_service.parsers.events import Arguments
from derender_service.parsers.run import Run
from tests.parsers.kit import Setting, detokenizer, encode, parse, sized, spell
from tests.parsers.one_call import CALLS, VALUE
from tests.parsers.outputs import FORMATS, TOKENIZERS, WITHOUT_TOKENS

BOUND = 4_000
"""Bytes of state (L3)."""
LONGEST_HOLD = 32
"""Characters of an argument that may wait: a marker, and the white space before it."""
LINE = "a line of <text> with {braces} and a `quote`; "
UNITS = ("\n", " ", "{", "[", '"', "<", "\\", "}", "a", ",", ":", "a=", "'", '{"a":', "\\u", "`", "\n<")


def _settings(tools: str) -> list[Setting]:
    return [Setting(name, "qwen3", tools) for name in (TOKENIZERS.get(tools, "qwen3_marked"), WITHOUT_TOKENS)]


def _parts(setting: Setting, value: str) -> tuple[list[int], list[int], list[int]]:
    """Ids of a call before, in and after its argument."""
    before, after = CALLS[setting.tools or ""].split(VALUE)
    return encode(setting.tokenizer, before), spell(setting.tokenizer, value), encode(setting.tokenizer, after)


@pytest.mark.parametrize("tools", FORMATS)
def test_a_long_argument_flows(tools: str) -> None:
    value = LINE * 440
    assert len(value) > 20_000
    for setting, size in zip(_settings(tools), (1, 5), strict=True):
        before, body, after = _parts(setting, value)
        chunks = sized(body, size)
        reading = parse(setting, [before, *chunks, after], encode(setting.tokenizer, "Hi\n"))
        assert [name for name, _ in reading.answer.calls] == ["f"]
        assert json.loads(reading.answer.calls[0][1]) == {"a": value}
        assert max(reading.sizes) < BOUND / 10
        bytes_of = detokenizer(setting.tokenizer).bytes_of
        told = accumulate(sum(len(bytes_of(token_id)) for token_id in chunk) for chunk in chunks)
        sent = accumulate(sum(len(e.text) for e in events if isinstance(e, Arguments)) for events in reading.events[1:-1])
        # Python's opening quote comes with the first character: it may be one of three.
        assert all(-1 <= due - done <= LONGEST_HOLD for due, done in zip(told, sent, strict=True))


@pytest.mark.parametrize("tools", FORMATS)
def test_work_is_flat_per_id_and_linear_in_a_whole(tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = _count_characters(monkeypatch)
    for setting in _settings(tools):
        before, body, after = _parts(setting, LINE * 60)
        early, late = before + body[:300], before + body
        costs = [_calls(partial(parse, setting, sized(ids, 1))) / len(ids) for ids in (early, late)]
        assert costs[1] < 1.1 * costs[0]
        read.clear()
        parse(setting, sized(late, 1))
        assert sum(read) < 1.2 * len(LINE * 60)
        once, twice = (_calls(partial(parse, setting, [before + body * times + after])) for times in (1, 2))
        assert twice < 2.1 * once


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_model_that_falls_into_repeating_itself(tools: str, data: st.DataObject) -> None:
    """Wherever in a call it happens: the state stays bounded, and the reading is that of the whole."""
    setting = data.draw(st.sampled_from(_settings(tools)))
    before, body, after = _parts(setting, "x y")
    ids = before + body + after
    start = ids[: data.draw(st.integers(0, len(ids)))]
    marks = [[mark] for mark in setting.grammar.marks]
    unit = data.draw(st.sampled_from([*(spell(setting.tokenizer, text * 8) for text in UNITS), *(mark * 8 for mark in marks)]))
    chunks = [start, *[unit * 8] * 100]
    reading = parse(setting, chunks)
    assert reading.answer == parse(setting, [[token_id for chunk in chunks for token_id in chunk]]).answer
    assert max(reading.sizes) < BOUND


def _count_characters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters each step of the driver is given: new ones, and those that were held."""
    counts: list[int] = []
    own = Run.text

    def text(run: Run, text: str) -> None:
        counts.append(len(text))
        own(run, text)

    monkeypatch.setattr(Run, "text", text)
    return counts


def _calls(work: Callable[[], Any]) -> int:
    """How many functions it calls, Python's and others."""
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
