"""The given cases: the right reading, and the same for every chunking, to the byte."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from derender_service.parsers.codecs.parameter_types import kinds_of
from tests.parsers.judge import wrong
from tests.parsers.kit import Setting, given_cases, parse, sized

CASES = [case for case in given_cases() if case["format"]["tool_call_parser"] != "openai"]


def _setting(case: dict[str, Any]) -> Setting:
    tools = [(tool["function"]["name"], tool["function"].get("parameters")) for tool in case["tools"] or []]
    choice = case["tool_choice"] or "none"
    formats = case["format"]
    return Setting(case["tokenizer"], formats["reasoning_parser"], formats["tool_call_parser"], choice, kinds_of(tools))


def _chunkings(ids: Sequence[int]) -> Iterator[list[Sequence[int]]]:
    for size in (1, 2, 3, 5):
        yield sized(ids, size)
    draw = random.Random(0)
    for _ in range(20):
        borders = sorted(draw.randint(0, len(ids)) for _ in range(draw.randint(1, 8)))
        yield [ids[a:b] for a, b in zip([0, *borders], [*borders, len(ids)], strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_given(case: dict[str, Any]) -> None:
    setting, ids, prompt = _setting(case), case["output_token_ids"], case["prompt_suffix_ids"]
    whole = parse(setting, [ids], prompt).answer
    accepted = [case["expected"], *case["also_ok"]]
    assert not all(reasons := [wrong(whole, expected) for expected in accepted]), reasons
    for chunks in _chunkings(ids):
        assert parse(setting, chunks, prompt).answer == whole, [len(chunk) for chunk in chunks]
