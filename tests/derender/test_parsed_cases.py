"""The given readings of raw outputs, through the service's own bodies: every chunking, streamed and whole, gives the right one."""

import json
import random
from typing import Any

import pytest

from tests.derender.parsed import assembled, chat_request, chunks_of, cuts, derenderer, stream, whole
from tests.parsers.judge import wrong
from tests.parsers.kit import Answer, given_cases

CASES = given_cases()


def answer_of(message: dict[str, Any]) -> Answer:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return Answer(message.get("reasoning") or "", message["content"] or "", calls)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_chunking_reads_it_right(case: dict[str, Any]) -> None:
    formats = case["format"]
    own = derenderer(case["tokenizer"], formats["reasoning_parser"], formats["tool_call_parser"])
    request = chat_request(tools=case["tools"] or None, tool_choice=case["tool_choice"])
    ids, prompt, finish = case["output_token_ids"], case["prompt_suffix_ids"], case["finish_reason"]
    batch = whole(own, ids, request, prompt, finish)
    assert wrong(answer_of(batch["message"]), case["expected"]) == ""
    called = bool(batch["message"].get("tool_calls")) and finish == "stop"
    assert batch["finish_reason"] == ("tool_calls" if called else finish)
    chance = random.Random(case["id"])
    divisions = cuts(ids)
    for _ in range(20):
        borders = sorted(chance.randint(0, len(ids)) for _ in range(chance.randint(1, 9)))
        divisions.append([ids[a:b] for a, b in zip([0, *borders], [*borders, len(ids)], strict=True)])
    for number, parts in enumerate(divisions):
        chunks, _ = stream(own, chunks_of(parts, finish, apart=number % 2 == 1), request, prompt)
        assert assembled(chunks) == {key: batch[key] for key in ("message", "finish_reason", "stop_reason")}


def test_the_cases_cover_every_kind_of_format() -> None:
    assert len({json.dumps(case["format"]) for case in CASES}) >= 14
