"""What OpenAI's fields say of parsed output: tool choice, hidden reasoning, stop strings, finish reasons, ids, logprobs, usage."""

import json
from typing import Any

import pytest

from protocol.errors import BadRequest
from tests.derender.parsed import (
    QWEN,
    REQUEST_ID,
    assembled,
    chat_request,
    chunk_of,
    chunks_of,
    cuts,
    derenderer,
    encode,
    step,
    stream,
    tool,
    whole,
)

TOOLS = [tool("f", x={"type": "integer"}), tool("g")]
ONE = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
TWO = ONE + '\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nwhy so\n</think>\n\n"


def both(text: str, request: dict[str, Any], formats: tuple[str, str | None, str | None] = QWEN, **finish: Any) -> dict[str, Any]:
    """The answer to an output of this text: streamed in every cut and whole, all the same."""
    own, ids = derenderer(*formats), encode(formats[0], text)
    batch = whole(own, ids, request, encode(formats[0], "<|im_start|>assistant\n"), **finish)
    found = {key: batch[key] for key in ("message", "finish_reason", "stop_reason")}
    for parts in cuts(ids):
        chunks, _ = stream(own, chunks_of(parts, **finish), request, encode(formats[0], "<|im_start|>assistant\n"))
        assert assembled(chunks) == found
    return batch


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (None, "tool_calls"),
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "f"}}, "stop"),
    ],
)
def test_calls_change_the_finish_reason_unless_the_request_named_the_function(choice: Any, reason: str) -> None:
    answer = both(ONE, chat_request(tools=TOOLS, tool_choice=choice))
    assert [call["function"] for call in answer["message"]["tool_calls"]] == [{"name": "f", "arguments": '{"x": 1}'}]
    assert answer["finish_reason"] == reason


def test_a_cut_call_is_cut_by_its_length_in_streams_and_whole() -> None:
    answer = both(ONE[: ONE.index('": 1')], chat_request(tools=TOOLS), finish="length")
    assert answer["finish_reason"] == "length"
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x'}


def test_without_tools_or_with_choice_none_markup_is_text() -> None:
    for request in (chat_request(), chat_request(tools=TOOLS, tool_choice="none")):
        answer = both(THOUGHT + ONE, request)
        assert answer["message"]["content"] == ONE
        assert answer["message"]["reasoning"] == "why so"
        assert answer["finish_reason"] == "stop"


def test_a_server_may_refuse_to_call_tools_that_are_merely_offered() -> None:
    own = derenderer(*QWEN, auto_tool_choice=False)
    ids = encode("qwen3", ONE)
    assert whole(own, ids, chat_request(tools=TOOLS))["message"]["content"] == ONE
    assert whole(own, ids, chat_request(tools=TOOLS, tool_choice="required"))["message"]["tool_calls"]


def test_only_one_call_where_the_request_wants_no_parallel_ones() -> None:
    answer = both(TWO, chat_request(tools=TOOLS, parallel_tool_calls=False))
    assert [call["function"]["name"] for call in answer["message"]["tool_calls"]] == ["f"]


def test_demanded_calls_may_come_as_structured_output() -> None:
    listed = '[{"name": "f", "parameters": {"x": 7}}, {"name": "g", "parameters": {}}]'
    answer = both(THOUGHT + listed, chat_request(tools=TOOLS, tool_choice="required"))
    assert [call["function"] for call in answer["message"]["tool_calls"]] == [
        {"name": "f", "arguments": '{"x": 7}'},
        {"name": "g", "arguments": "{}"},
    ]
    named = both('{"x": 7}', chat_request(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "f"}}))
    assert [call["function"] for call in named["message"]["tool_calls"]] == [{"name": "f", "arguments": '{"x": 7}'}]
    assert named["finish_reason"] == "stop"
    assert both('{"x": 7}', chat_request(tools=TOOLS))["message"]["content"] == '{"x": 7}'


def test_ids_of_calls_are_derived_and_differ() -> None:
    calls = both(TWO, chat_request(tools=TOOLS))["message"]["tool_calls"]
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("call_") for call_id in ids)
    assert [call["id"] for call in both(TWO, chat_request(tools=TOOLS))["message"]["tool_calls"]] == ids


def test_kimi_keeps_the_models_ids_and_mistral_has_nine_letters() -> None:
    kimi = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )
    answer = both(kimi, chat_request(tools=TOOLS), ("qwen3_kimi", None, "kimi_k2"))
    assert [call["id"] for call in answer["message"]["tool_calls"]] == ["functions.f:3"]
    answer = both("[TOOL_CALLS]f[ARGS]{}", chat_request(tools=TOOLS), ("qwen3_mistral11", None, "mistral"))
    (call,) = answer["message"]["tool_calls"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()


def test_hidden_reasoning_leaves_no_trace_but_its_count() -> None:
    request = chat_request(tools=TOOLS, include_reasoning=False, return_token_ids=True, logprobs=True)
    own, ids = derenderer(*QWEN), encode("qwen3", THOUGHT + "Hello")
    logprobs = [{"token_id": i, "logprob": -0.5, "rank": 1, "top_logprobs": []} for i in ids]
    answer = whole(own, ids, request, logprobs={"content": logprobs})
    assert "why" not in json.dumps(answer)
    assert answer["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert answer["logprobs"] is None
    assert "token_ids" not in answer
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    for parts in cuts(ids):
        chunks, _ = stream(own, chunks_of(parts), request)
        assert "why" not in json.dumps(chunks)
        assert assembled(chunks)["message"]["content"] == "Hello"


def test_reasoning_has_its_older_name_too_where_the_server_is_told_so() -> None:
    own, ids = derenderer(*QWEN, older_reasoning_field=True), encode("qwen3", THOUGHT + "Hello")
    message = whole(own, ids, chat_request())["message"]
    assert message["reasoning"] == message["reasoning_content"] == "why so"
    deltas = [
        choice["delta"] for chunk in stream(own, chunks_of([[i] for i in ids]), chat_request())[0] for choice in chunk["choices"]
    ]
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)


def test_reasoning_tokens_are_counted_alike_in_every_cut() -> None:
    for formats, text in ((QWEN, THOUGHT + "Hello " + ONE), (("smollm2", "qwen3", "hermes"), THOUGHT + "Hello " + ONE)):
        own, ids = derenderer(*formats), encode(formats[0], text)
        counted = whole(own, ids, chat_request(tools=TOOLS))["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert counted == pytest.approx(len(encode(formats[0], "\nwhy so\n")), abs=6)
        for parts in cuts(ids):
            _, state = stream(own, chunks_of(parts), chat_request(tools=TOOLS))
            assert state["reasoning_tokens"] == counted


def test_the_streams_usage_tells_the_reasoning_tokens() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", THOUGHT + "Hello")
    end = {**chunk_of((), "stop"), "usage": {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}}
    chunks, state = stream(own, [chunk_of(ids), end], chat_request())
    assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": state["reasoning_tokens"]}


STOPS = [
    (THOUGHT + "one END two", "why so", "one ", None),
    ("<think>\nwhy END so\n</think>\n\none", "why ", None, None),
    (THOUGHT + "one E" + "ND two", "why so", "one ", None),
    (THOUGHT + "EN", "why so", "EN", "none"),
    (THOUGHT + "E\n" + ONE + "ND", "why so", "END", "none"),
    (THOUGHT + '<tool_call>\n{"name": "f", "arguments": {"x": "END"}}\n</tool_call>', "why so", None, "none"),
]


@pytest.mark.parametrize(("text", "reasoning", "content", "matched"), STOPS)
def test_stop_strings_stop_content_and_reasoning_but_no_arguments(
    text: str, reasoning: str, content: str | None, matched: str | None
) -> None:
    answer = both(text, chat_request(tools=TOOLS, stop=["END", "</tool_call>"]))
    assert answer["message"].get("reasoning") == reasoning
    assert answer["message"]["content"] == content
    assert answer["stop_reason"] == (None if matched else "END")


def test_stop_strings_may_be_shown() -> None:
    request = chat_request(tools=TOOLS, stop="END", include_stop_str_in_output=True)
    assert both(THOUGHT + "one END two", request)["message"]["content"] == "one END"


def test_no_stop_string_reaches_over_the_end_of_reasoning() -> None:
    answer = both("<think>\nE\n</think>\n\nND of it", chat_request(stop="END"))
    assert (answer["message"]["reasoning"], answer["message"]["content"]) == ("E", "ND of it")


def test_ids_and_logprobs_come_one_for_one() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", THOUGHT + "Hi " + TWO)
    request = chat_request(tools=TOOLS, return_token_ids=True, logprobs=True, top_logprobs=1)
    for parts in cuts(ids):
        generated = []
        for number, part in enumerate(parts):
            top = [{"token_id": i, "logprob": -0.5, "rank": 1} for i in part]
            entries = [{**entry, "top_logprobs": [entry]} for entry in top]
            generated.append(chunk_of(part, "stop" if number == len(parts) - 1 else None, logprobs={"content": entries}))
        chunks, _ = stream(own, generated, request)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert [i for choice in choices for i in choice["token_ids"]] == ids
        spelled = b"".join(bytes(entry["bytes"]) for choice in choices for entry in choice["logprobs"]["content"])
        assert spelled.decode() == THOUGHT + "Hi " + TWO


def test_choices_do_not_share_their_states() -> None:
    own = derenderer("qwen3", "deepseek_r1", "hermes")
    parts = [(0, "s"), (1, "t"), (0, "</think>a"), (1, "u</think>b"), (0, TWO), (1, ONE), (0, ""), (1, "")]
    states: dict[int, Any] = {}
    found: dict[int, list[Any]] = {0: [], 1: []}
    for index, text in parts:
        chunk = chunk_of(encode("qwen3", text), None if text else "stop")
        chunk["choices"][0]["index"] = index
        body = {"stream": True, "model": "m", "generate_chunk": chunk, "stream_state": states.get(index)}
        if index not in states:
            body |= {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": encode("qwen3", "<think>\n")}
        answer = step(own, body)
        states[index] = answer["stream_state"]
        found[index].append(answer["chunk"])
    first, second = (assembled(found[index])["message"] for index in (0, 1))
    assert (first["reasoning"], first["content"], len(first["tool_calls"])) == ("s", "a", 2)
    assert (second["reasoning"], second["content"], len(second["tool_calls"])) == ("tu", "b", 1)
    assert first["tool_calls"][0]["id"] != second["tool_calls"][0]["id"]


def test_the_first_chunk_must_bring_what_the_parser_needs() -> None:
    own = derenderer(*QWEN)
    body = {"stream": True, "model": "m", "generate_chunk": chunk_of(encode("qwen3", "Hi"))}
    with pytest.raises(BadRequest) as caught:
        step(own, body | {"prompt_token_ids": []})
    assert caught.value.param == "chat_request"
    with pytest.raises(BadRequest) as caught:
        step(own, body | {"chat_request": chat_request()})
    assert caught.value.param == "prompt_token_ids"
    told = {**chunk_of(encode("qwen3", "Hi")), "prompt_token_ids": []}
    assert (
        step(own, {**body, "generate_chunk": told, "chat_request": chat_request()})["chunk"]["choices"][0]["delta"]["content"]
        == "Hi"
    )


def test_later_chunks_need_neither_request_nor_prompt_and_stay_small() -> None:
    own = derenderer(*QWEN)
    many = [tool(f"tool_{n}", **{f"key_{k}": {"type": "integer"} for k in range(12)}) for n in range(100)]
    request = chat_request(tools=many, messages=[{"role": "user", "content": "long " * 20_000}])
    _, state = stream(own, [chunk_of([i]) for i in encode("qwen3", THOUGHT + ONE)[:-2]], request, encode("qwen3", "x" * 9000))
    assert len(json.dumps({"stream": True, "model": "m", "generate_chunk": chunk_of([1]), "stream_state": state})) < 2000


def test_the_answers_id_is_in_the_ids_of_calls() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", ONE)
    one = whole(own, ids, chat_request(tools=TOOLS))["message"]["tool_calls"][0]["id"]
    other = {**chunk_of(ids, "stop"), "request_id": REQUEST_ID + "x"}
    chunks, _ = stream(own, [other], chat_request(tools=TOOLS))
    assert assembled(chunks)["message"]["tool_calls"][0]["id"] != one


def test_text_held_for_a_marker_until_the_end_counts_as_read_before_min_tokens() -> None:
    own = derenderer("smollm2", None, "hermes")
    request = chat_request(tools=TOOLS, stop=["<tool"], min_tokens=50)
    ids = encode("smollm2", "See <tool")
    batch = whole(own, ids, request, finish="length")
    assert (batch["message"]["content"], batch["finish_reason"], batch["stop_reason"]) == ("See <tool", "length", None)
    for parts in cuts(ids):
        chunks, _ = stream(own, chunks_of(parts, "length"), request)
        assert assembled(chunks) == {key: batch[key] for key in ("message", "finish_reason", "stop_reason")}
