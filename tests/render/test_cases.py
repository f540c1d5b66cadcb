"""Requests with known-right prompt ids, of real tokenizers and templates."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.render.rendering import render_chat, render_completion, renderer

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases" / "render.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_prompt_ids(case: dict[str, Any]) -> None:
    render = renderer(case["tokenizer"], name=case["request"]["model"])
    ids: Any
    if case["endpoint"] == "chat":
        ids = {"token_ids": render_chat(render, **case["request"])["token_ids"]}
    else:
        ids = [{"token_ids": answer["token_ids"]} for answer in render_completion(render, **case["request"])]
    right, wrong = [case["expected"], *case.get("accept", [])], case.get("reject", [])
    if "date_span" in case:
        ids, *right = (without_date(each, *case["date_span"]) for each in (ids, *right))
    assert ids in right
    assert ids not in wrong


def without_date(answer: dict[str, Any], start: int, length: int) -> list[int]:
    """Harmony's system message says which day it is."""
    ids: list[int] = answer["token_ids"]
    return [*ids[:start], *ids[start + length :]]
