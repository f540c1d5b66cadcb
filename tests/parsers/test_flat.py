"""Law L3: what a chunk costs and what its state weighs do not grow with the stream. Counted, not timed."""

import json
from collections.abc import Sequence

import pytest

from derender_service.parsers.families import TOOLS
from tests.parsers.kit import Setting, encode, parse, sized, spell
from tests.parsers.one_call import CALLS, VALUE
from tests.parsers.outputs import TOKENIZERS, WITHOUT_TOKENS

BOUND = 4_000
"""Bytes of state (L3)."""
LONGEST_HOLD = 64
"""Characters: a marker, and the white space before it."""


def _settings(tools: str) -> list[Setting]:
    return [Setting(name, "qwen3", tools) for name in (TOKENIZERS.get(tools, "qwen3_marked"), WITHOUT_TOKENS)]


def _ids(setting: Setting, value: str) -> list[int]:
    before, after = CALLS[setting.tools or ""].split(VALUE)
    return [*encode(setting.tokenizer, before), *spell(setting.tokenizer, value), *encode(setting.tokenizer, after)]


@pytest.mark.parametrize("tools", sorted(TOOLS))
def test_a_long_argument_flows(tools: str) -> None:
    value = "a line of <text> with {braces} and a `quote`; " * 440
    for setting in _settings(tools):
        ids = _ids(setting, value)
        reading = parse(setting, sized(ids, 1), encode(setting.tokenizer, "Hi\n"))
        assert [name for name, _ in reading.answer.calls] == ["f"]
        assert json.loads(reading.answer.calls[0][1]) == {"a": value}
        assert max(reading.sizes) < 1_000
        arrived = [sum(len(event.text) for event in events if hasattr(event, "text")) for events in reading.events]
        first = next(at for at, count in enumerate(arrived) if count)
        for at in range(first, len(ids) - 40):
            pieces = len(setting_text(setting, ids[first : at + 1]))
            assert sum(arrived[first : at + 1]) >= pieces - LONGEST_HOLD


def setting_text(setting: Setting, ids: Sequence[int]) -> str:
    from tests.parsers.kit import detokenizer

    return detokenizer(setting.tokenizer).whole(ids, keep_special=True)
