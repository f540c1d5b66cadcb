"""Troubles with parsed output that users met in public, each as its smallest input, through derender's own bodies."""

import json
from typing import Any

import pytest

from tests.derender.parsed import (
    QWEN,
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

TOOLS = [tool("f", x={"type": "integer"}), tool("g", y={"type": "integer"})]
OPEN = "<|im_start|>assistant\n<think>\n"


def message(
    texts: list[str], prompt: str = "", formats: tuple[str, str | None, str | None] = QWEN, **request: Any
) -> dict[str, Any]:
    """What deltas of these texts give, one derender call each; the same as of one call."""
    own, parts = derenderer(*formats), [encode(formats[0], text) for text in texts]
    asked, start = chat_request(tools=TOOLS, **request), encode(formats[0], prompt)
    chunks, _ = stream(own, chunks_of(parts), asked, start)
    found: dict[str, Any] = assembled(chunks)["message"]
    assert found == whole(own, [i for part in parts for i in part], asked, start)["message"]
    return found


def test_r01_a_character_over_the_end_of_reasoning_is_whole() -> None:
    own, emoji = derenderer(*QWEN), encode("qwen3", "🪐")
    assert len(emoji) > 1
    parts = [encode("qwen3", "thought"), [*encode("qwen3", "</think>"), emoji[0]], [*emoji[1:], *encode("qwen3", " ok")]]
    chunks, _ = stream(own, chunks_of(parts), chat_request(), encode("qwen3", OPEN))
    found = assembled(chunks)["message"]
    assert (found["reasoning"], found["content"]) == ("thought", "🪐 ok")


def test_r15_the_end_of_thinking_may_be_cut_anywhere() -> None:
    for formats in (QWEN, ("smollm2", "qwen3", "hermes")):
        own, ids = derenderer(*formats), encode(formats[0], "<think>why</think>plain")
        for parts in cuts(ids, sizes=range(1, 8)):
            found = assembled(stream(own, chunks_of(parts), chat_request())[0])["message"]
            assert (found["reasoning"], found["content"]) == ("why", "plain")


def test_r17_the_prompt_says_whether_reasoning_is_over_and_nothing_else_does() -> None:
    found = message(["42"], OPEN + "\n</think>\n\n", chat_template_kwargs={"any_switch": True})
    assert found == {"role": "assistant", "content": "42", "refusal": None}


def test_r19_cut_within_reasoning_there_is_no_content() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", "Let me")
    answer = whole(own, ids, chat_request(), encode("qwen3", OPEN), "length")
    assert (answer["message"]["content"], answer["message"]["reasoning"], answer["finish_reason"]) == (None, "Let me", "length")


def test_r21_a_marker_spelled_by_ordinary_tokens_is_text() -> None:
    spelled = [*encode("qwen3", "say </"), *encode("qwen3", "think"), *encode("qwen3", "> now")]
    ids = [*encode("qwen3", "<think>"), *spelled, *encode("qwen3", "</think>"), *encode("qwen3", "done")]
    found = whole(derenderer(*QWEN), ids, chat_request())["message"]
    assert (found["reasoning"], found["content"]) == ("say </think> now", "done")


def test_r23_a_marker_is_seen_although_its_first_character_came_before() -> None:
    texts = ["thought<", 'tool_call>{"name":"f","arguments":{}}</tool_call>']
    found = message(texts, "<|im_start|>assistant\n<think>", ("smollm2", "qwen3", "hermes"))
    assert found["reasoning"] == "thought"
    assert [call["function"]["name"] for call in found["tool_calls"]] == ["f"]


def test_r25_a_second_end_of_thinking_is_dropped() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", "a</think>b</think>c")
    for parts in cuts(ids):
        found = assembled(stream(own, chunks_of(parts), chat_request(), encode("qwen3", OPEN))[0])["message"]
        assert (found["reasoning"], found["content"]) == ("a", "bc")


@pytest.mark.parametrize("size", range(4, 13))
def test_r27_two_calls_in_few_deltas_are_whole(size: int) -> None:
    texts = [
        '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "g", "arguments": {"y": 2}}\n</tool_call>',
    ]
    own, ids = derenderer(*QWEN), encode("qwen3", "\n".join(texts))
    found = assembled(stream(own, chunks_of(cuts(ids, sizes=[size])[1]), chat_request(tools=TOOLS))[0])["message"]
    assert [call["function"] for call in found["tool_calls"]] == [
        {"name": "f", "arguments": '{"x": 1}'},
        {"name": "g", "arguments": '{"y": 2}'},
    ]


def test_r43_a_cut_call_finishes_by_length() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", '<tool_call>\n{"name": "f", "arguments": {"x')
    assert whole(own, ids, chat_request(tools=TOOLS), finish="length")["finish_reason"] == "length"
    assert assembled(stream(own, chunks_of([ids], "length"), chat_request(tools=TOOLS))[0])["finish_reason"] == "length"


def test_r51_a_long_argument_flows() -> None:
    """The name comes at once, and text never waits longer than a few characters."""
    own = derenderer(*QWEN)
    ids = encode("qwen3", '<tool_call>\n{"name": "f", "arguments": {"x": "' + "some words of a file\\n" * 700)
    body: dict[str, Any] = {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": []}
    sent, read, state = "", "", None
    for token_id in ids:
        answer = step(own, {"stream": True, "model": "m", "generate_chunk": chunk_of([token_id]), "stream_state": state, **body})
        state, body = answer["stream_state"], {}
        delta = answer["chunk"]["choices"][0]["delta"]
        sent += "".join(call["function"]["arguments"] for call in delta.get("tool_calls", ()))
        read += own.detokenizer.whole([token_id], keep_special=True)
        if '"arguments": {' in read:
            assert len(read.partition('"arguments": ')[2]) - len(sent) <= 4
            assert state["tools_streamed"]
    assert len(ids) > 4000
    assert read.endswith(sent)


def test_r53_stop_strings_are_never_ignored() -> None:
    for include, content in ((False, "one "), (True, "one END")):
        found = message(["one E", "ND two"], stop=["END"], include_stop_str_in_output=include)
        assert found["content"] == content


def test_r55_nothing_of_a_stop_string_is_shown_and_a_near_miss_is() -> None:
    own = derenderer(*QWEN)
    for text, content in (("mnopqrs", ""), ("mnopqx", "mnopqx"), ("London", "")):
        ids = encode("qwen3", text)
        request = chat_request(stop=["mnopqrs", "Lond"])
        for parts in cuts(ids):
            chunks, _ = stream(own, chunks_of(parts, "stop"), request)
            assert "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]) == content


def test_r57_and_r61_every_id_has_its_own_logprob_with_its_real_bytes() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", "🪐 日本")
    entries = [
        {"token_id": i, "logprob": -1.0, "rank": 1, "top_logprobs": [{"token_id": (i + 1) % 1000, "logprob": -2.0, "rank": 2}]}
        for i in ids
    ]
    for size in (1, 3):
        chunks = []
        for at in range(0, len(ids), size):
            end = "stop" if at + size >= len(ids) else None
            chunks.append(chunk_of(ids[at : at + size], end, logprobs={"content": entries[at : at + size]}))
        answers, _ = stream(own, chunks, chat_request(logprobs=True, top_logprobs=1))
        shown = [entry for answer in answers for entry in answer["choices"][0]["logprobs"]["content"]]
        assert b"".join(bytes(entry["bytes"]) for entry in shown).decode() == "🪐 日本"
        tops = [own.detokenizer.bytes_of((i + 1) % 1000) for i in ids]
        assert [bytes(entry["top_logprobs"][0]["bytes"]) for entry in shown] == tops


def test_r63_the_last_text_may_come_with_the_finish() -> None:
    own, ids = derenderer(*QWEN), encode("qwen3", "the end")
    chunks, _ = stream(own, [chunk_of(ids, "stop")], chat_request())
    (choice,) = chunks[0]["choices"]
    assert (choice["delta"]["content"], choice["finish_reason"]) == ("the end", "stop")


@pytest.mark.slow
def test_r83_a_long_parsed_streams_bodies_do_not_grow() -> None:
    own = derenderer(*QWEN)
    words = encode("qwen3", "and so on, for ever and ever; ")
    ids = [*encode("qwen3", "<think>\n"), *words * 200, *encode("qwen3", "</think>\n\n"), *words * 200]
    sizes, state, body = [], None, {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": []}
    for token_id in ids:
        asked = {"stream": True, "model": "m", "generate_chunk": chunk_of([token_id]), "stream_state": state, **body}
        answer = step(own, asked)
        state, body = answer["stream_state"], {}
        sizes.append(len(json.dumps(asked)))
    assert max(sizes[1:]) < 800
