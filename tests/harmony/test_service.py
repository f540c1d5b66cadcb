"""Harmony through derender's own bodies: stop tokens, logprobs, token ids, counts and stop strings."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.derender.parsed import assembled, chat_request, chunk_of, chunks_of, cuts, derenderer, stream, tool, whole
from tests.harmony.kit import CALL, NAME, PROMPT, RETURN, ids_of, spelled

JsonObject = dict[str, Any]
OWN = (NAME, "openai_gptoss", "openai")
TOOLS = [tool("f", a={"type": "string"})]
ANALYSIS = "<|channel|>analysis<|message|>Think first.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>Granite is harder."
CALL_F = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


def answered(chunks: Sequence[JsonObject], **fields: Any) -> JsonObject:
    answers, _ = stream(derenderer(*OWN), chunks, chat_request(tools=TOOLS, **fields), ids_of(PROMPT))
    return assembled(answers)


def message(content: str | None, reasoning: str = "", calls: Sequence[tuple[str, str]] = ()) -> JsonObject:
    """Without the ids of calls."""
    found: JsonObject = {"content": content}
    if reasoning:
        found["reasoning"] = reasoning
    if calls:
        found["tool_calls"] = list(calls)
    return found


def told(answer: JsonObject) -> JsonObject:
    given = answer["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in given.get("tool_calls", ())]
    return message(given["content"], given.get("reasoning", ""), calls)


def endings(ids: list[int], stop: int) -> list[list[JsonObject]]:
    """The ways in which workers end an answer: the stop token with the last ids, alone in the last chunk, or left out; the reason
    told, or null."""
    ways = []
    for reason in (stop, None):
        finish = {"finish": "stop", "stop_reason": reason}
        ways += [
            [chunk_of([*ids, stop], **finish)],
            [chunk_of(ids), chunk_of([stop], **finish)],
            [chunk_of([*ids, stop]), chunk_of([], **finish)],
            [chunk_of(ids, **finish)],
            [chunk_of(ids), chunk_of([], **finish)],
            [*(chunk_of([token_id]) for token_id in ids), chunk_of([stop], **finish)],
        ]
    return ways


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        (ANALYSIS + FINAL, RETURN, message("Granite is harder.", "Think first.")),
        (FINAL, RETURN, message("Granite is harder.")),
        ("No header at all", RETURN, message("No header at all")),
        (f'{ANALYSIS}{CALL_F}{{"a": "b"}}', CALL, message(None, "Think first.", [("f", '{"a": "b"}')])),
        (f"{CALL_F}", CALL, message(None, "", [("f", "{}")])),
        (f"{CALL_F}{{}}<|call|><|start|>assistant{CALL_F}", CALL, message(None, "", [("f", "{}"), ("f", "{}")])),
    ],
)
def test_however_the_stop_token_comes_the_answer_is_one(text: str, stop: int, expected: JsonObject) -> None:
    ids = ids_of(text)
    for chunks in endings(ids, stop):
        answer = answered(chunks)
        assert told(answer) == expected
        assert answer["finish_reason"] == ("tool_calls" if "tool_calls" in expected else "stop")
    for reason in (stop, None):
        for output in ([*ids, stop], ids):
            batch = whole(derenderer(*OWN), output, chat_request(tools=TOOLS), ids_of(PROMPT), stop_reason=reason)
            assert told(batch) == expected


def test_stop_tokens_do_not_show_even_where_they_are_asked_for() -> None:
    fields = {"include_stop_str_in_output": True, "skip_special_tokens": False}
    for chunks in endings(ids_of(FINAL), RETURN):
        assert told(answered(chunks, **fields)) == message("Granite is harder.")


def test_a_cut_call_is_not_made_whole() -> None:
    for text, arguments in ((CALL_F, ""), (f'{CALL_F}{{"a": "b', '{"a": "b'), (CALL_F.removesuffix("<|message|>"), "")):
        for parts in cuts(ids_of(text)):
            answer = answered(chunks_of(parts, "length"))
            assert told(answer) == message(None, "", [("f", arguments)])
            assert answer["finish_reason"] == "length"


def test_reasoning_tokens_are_the_ids_of_reasoning_bodies() -> None:
    thought, more = spelled("Think 日本 🪨 first."), spelled("x = 1")
    ids = [
        *ids_of("<|channel|>analysis<|message|>"), *thought, *ids_of("<|end|><|start|>assistant"),
        *ids_of("<|channel|>analysis to=python code<|message|>"), *more, *ids_of("<|call|><|start|>assistant"),
        *ids_of(f"{CALL_F}{{}}<|call|><|start|>assistant{FINAL}<|return|>"),
    ]  # fmt: skip
    batch = whole(derenderer(*OWN), ids, chat_request(tools=TOOLS), ids_of(PROMPT))
    assert batch["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(thought) + len(more)
    usage = {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}
    for parts in cuts(ids):
        chunks = [*chunks_of(parts), {"request_id": "req-1", "choices": [], "usage": usage}]
        answers, _ = stream(derenderer(*OWN), chunks, chat_request(tools=TOOLS), ids_of(PROMPT))
        assert answers[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(thought) + len(more)


def test_hidden_reasoning_leaves_no_trace() -> None:
    ids = ids_of(f"{ANALYSIS}{FINAL}<|return|>")
    for parts in cuts(ids):
        answers, _ = stream(
            derenderer(*OWN), chunks_of(parts), chat_request(include_reasoning=False, return_token_ids=True), ids_of(PROMPT)
        )
        assert told(assembled(answers)) == message("Granite is harder.")
        assert "Think" not in json.dumps(answers)
        assert "reasoning" not in json.dumps(answers)


def logprobs(ids: Sequence[int]) -> JsonObject:
    return {"content": [{"token_id": token_id, "logprob": -0.5, "top_logprobs": []} for token_id in ids]}


def test_logprobs_and_token_ids_go_with_the_ids_of_each_chunk() -> None:
    ids = ids_of(f"{ANALYSIS}{FINAL}<|return|>")
    request = chat_request(logprobs=True, return_token_ids=True)
    batch = whole(derenderer(*OWN), ids, request, ids_of(PROMPT), logprobs=logprobs(ids))
    assert batch["token_ids"] == ids
    for parts in cuts(ids):
        chunks = [chunk_of(part, logprobs=logprobs(part)) for part in parts]
        chunks.append(chunk_of([], "stop"))
        answers, _ = stream(derenderer(*OWN), chunks, request, ids_of(PROMPT))
        choices = [choice for answer in answers for choice in answer["choices"]]
        assert [token_id for choice in choices for token_id in choice.get("token_ids") or ()] == ids
        entries = [entry for choice in choices for entry in (choice.get("logprobs") or {"content": []})["content"]]
        assert entries == batch["logprobs"]["content"]
        assert "".join(entry["token"] for entry in entries if not entry["token"].startswith("<|")).endswith(
            "finalGranite is harder."
        )


def test_stop_strings_are_looked_for_in_what_the_user_reads() -> None:
    own, prompt = derenderer(*OWN), ids_of(PROMPT)
    text = f'{ANALYSIS}{CALL_F}{{"a": "is harder"}}<|call|><|start|>assistant{FINAL} Is it?<|return|>'
    for stop, content, reasoning in (("is harder", "Granite ", "Think first."), ("k f", None, "Thin"), ("final", None, None)):
        request = chat_request(tools=TOOLS, stop=[stop])
        batch = whole(own, ids_of(text), request, prompt)
        assert batch["stop_reason"] == (stop if reasoning else None)
        if reasoning:
            assert (batch["message"]["content"], batch["message"]["reasoning"]) == (content, reasoning)
        for parts in cuts(ids_of(text)):
            answers, _ = stream(own, chunks_of(parts), request, prompt)
            assert assembled(answers) == {key: batch[key] for key in ("message", "finish_reason", "stop_reason")}


def test_choices_of_tools() -> None:
    ids = ids_of(f"{ANALYSIS}{CALL_F}{{}}<|call|>")
    named = {"type": "function", "function": {"name": "f"}}
    for choice, finish in (("auto", "tool_calls"), ("required", "tool_calls"), (named, "stop")):
        answer = answered([chunk_of(ids, "stop")], tool_choice=choice)
        assert told(answer) == message(None, "Think first.", [("f", "{}")])
        assert answer["finish_reason"] == finish
    answer = answered([chunk_of(ids, "stop")], tool_choice="none")
    assert told(answer) == message("{}", "Think first.")
    assert answer["finish_reason"] == "stop"


def test_only_one_call_where_parallel_ones_are_forbidden() -> None:
    ids = ids_of(f"{CALL_F}{{}}<|call|><|start|>assistant{CALL_F}{{}}<|call|>")
    assert told(answered([chunk_of(ids, "stop")], parallel_tool_calls=False)) == message(None, "", [("f", "{}")])


def test_one_half_of_the_format() -> None:
    ids, prompt = ids_of(f"{ANALYSIS}{CALL_F}{{}}<|call|>"), ids_of(PROMPT)
    only_reasoning = whole(derenderer(NAME, "openai_gptoss", None), ids, chat_request(tools=TOOLS), prompt)
    assert told(only_reasoning) == message("{}", "Think first.")
    only_tools = whole(derenderer(NAME, None, "openai"), ids, chat_request(tools=TOOLS), prompt)
    assert told(only_tools) == message(None, "Think first.", [("f", "{}")])
