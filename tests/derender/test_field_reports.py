"""Troubles that users of such systems met in public, each as its smallest input; the rest of their kinds is in the laws."""

import json
from typing import Any

import pytest

from derender_service.stream import derender_completion_chunk
from derender_service.window import START
from protocol.derender import DerenderCompletionStreamRequest
from tests.derender.kit import byte_ids, detokenizer, special_ids, tokenizer, whole_text
from tests.derender.test_detokenizer import read
from tests.derender.test_streams import assembled, completion_stream, derenderer, generate_chunks


def per_id(name: str, output: list[int], finish: str = "length", **request: Any) -> str:
    context = {"completion_request": {"prompt": "x", **request}}
    text: str = assembled(completion_stream(name, generate_chunks([[i] for i in output], finish, None, False), context))["text"]
    return text


@pytest.mark.parametrize("name", ["smollm2", "tiny"])
def test_r03_ids_without_text_do_not_slow_a_long_stream_down(name: str) -> None:
    """Thousands of ids that decode to nothing, or to bytes that never become a character: the state stays as small as ever."""
    lead = [i for i in byte_ids(name) if detokenizer(name).bytes_of(i)[:1] >= b"\xe0"][:1]
    state = None
    for token_id in ([special_ids(name)[0]] * 300 + lead * 300) * 4:
        chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": [token_id]}]}
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
        answer = derender_completion_chunk(derenderer(name), DerenderCompletionStreamRequest.model_validate(body))
        state = json.loads(answer.wire())["stream_state"]
        assert len(json.dumps(state)) < 400


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "gptoss", "gemma3", "tiny"])
def test_r05_bytes_that_are_no_text_do_not_end_the_stream(name: str) -> None:
    continuation = next(i for i in byte_ids(name) if 0x80 <= detokenizer(name).bytes_of(i)[0] < 0xC0)
    word = tokenizer(name).encode("hello", add_special_tokens=False).ids
    output = [continuation, *word, continuation, continuation, *word]
    assert read(detokenizer(name), START, [[i] for i in output]) == whole_text(name, output)
    assert per_id(name, output).count("hello") == 2


def test_r07_a_character_over_two_chunks_is_neither_lost_nor_repeated() -> None:
    own = tokenizer("smollm2")
    word, character = own.encode("cat", add_special_tokens=False).ids, own.encode("👩", add_special_tokens=False).ids
    stream = generate_chunks([[*word, *character[:1]], [*character[1:], *word]], "length", None, False)
    assert assembled(completion_stream("smollm2", stream, {}))["text"] == "cat👩cat"
    replacement = own.encode("\ufffd", add_special_tokens=False).ids
    assert per_id("smollm2", [*word, *replacement]) == "cat\ufffd"
    assert per_id("smollm2", [*word, *character[:-1]]) == "cat"


def test_r09_words_do_not_run_together() -> None:
    output = tokenizer("tiny").encode("The cat sat on a mat", add_special_tokens=False).ids
    assert per_id("tiny", output) == "The cat sat on a mat"


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama3_1", "gemma3", "tiny"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_r11_quoted_words_are_all_there(name: str, size: int) -> None:
    text = 'a "word" and "another-one", "so-called" - "end"'
    output = tokenizer(name).encode(text, add_special_tokens=False).ids
    chunks = [output[i : i + size] for i in range(0, len(output), size)]
    assert assembled(completion_stream(name, generate_chunks(chunks, "length", None, False), {}))["text"] == text


@pytest.mark.parametrize(("include", "right"), [(False, "one "), (True, "one END")])
def test_r53_a_stop_string_over_two_ids(include: bool, right: str) -> None:
    output = tokenizer("smollm2").encode("one END two", add_special_tokens=False).ids
    for chunks in ([[i] for i in output], [output], [output[:2], output[2:]]):
        stream = generate_chunks(chunks, "length", None, False)
        context = {"completion_request": {"prompt": "x", "stop": ["END"], "include_stop_str_in_output": include}}
        answer = assembled(completion_stream("smollm2", stream, context))
        assert (answer["text"], answer["finish"], answer["stop_reason"]) == (right, ["stop"], ["END"])


def test_r55_stop_strings_know_no_token_borders() -> None:
    own = tokenizer("smollm2")
    london = own.encode(" London", add_special_tokens=False).ids
    assert per_id("smollm2", london, stop=["Lond"]) == " "
    near_miss = own.encode("mnopqx", add_special_tokens=False).ids
    assert per_id("smollm2", near_miss, stop=["mnopqrs"]) == "mnopqx"


def test_the_largest_state_stays_under_its_bound() -> None:
    """L3: every bounded part at its bound at once."""
    own = tokenizer("tiny")
    stops = ["a" * 31 + chr(ord("b") + n) for n in range(25)] + ["é" * 90]
    request = {"prompt": "x", "stop": stops, "stop_token_ids": list(range(300, 364)), "return_token_ids": True}
    context = {"completion_request": request, "prompt_token_ids": [own.token_to_id("▁the")]}
    run = [own.token_to_id(f"<0x{b:02X}>") for b in ("é" * 40).encode()]
    output = [own.token_to_id("a")] * 31 + run
    chunks = completion_stream("tiny", generate_chunks([[i] for i in output], None, None, False), context)
    assert len(chunks) == len(output)  # completion_stream measures every state on the way
