"""Logprobs as clients read them: readable tokens, real bytes, every entry beside its own token."""

from typing import Any

import pytest

from derender_service.stream import derender_chat_chunk, derender_completion_chunk
from protocol.derender import DerenderChatStreamRequest, DerenderCompletionStreamRequest
from tests.derender.kit import TABLED, special_ids, tokenizer
from tests.derender.test_streams import derenderer

JsonObject = dict[str, Any]


def chunk_of(token_ids: list[int], entries: list[JsonObject]) -> JsonObject:
    return {"request_id": "r", "choices": [{"index": 0, "token_ids": token_ids, "logprobs": {"content": entries}}]}


def entry(token_id: int, *top: int) -> JsonObject:
    alternatives = [{"token_id": i, "logprob": -float(n), "rank": n} for n, i in enumerate(top, start=1)]
    return {"token_id": token_id, "logprob": -0.5, "rank": 1, "top_logprobs": alternatives}


def chat(name: str, chunk: JsonObject, state: JsonObject | None = None, **changes: Any) -> list[Any]:
    body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **changes}
    answer = derender_chat_chunk(derenderer(name), DerenderChatStreamRequest.model_validate(body))
    logprobs = answer.chunk.choices[0].logprobs
    assert logprobs is not None
    return logprobs.content or []


@pytest.mark.parametrize("name", TABLED)
def test_parts_of_characters_are_readable_and_their_bytes_real(name: str) -> None:
    """R57: never empty, never U+FFFD, never the alphabet that byte-level vocabularies are written in."""
    output = tokenizer(name).encode("x👩日", add_special_tokens=False).ids
    entries = chat(name, chunk_of(output, [entry(i, i, *output[:2]) for i in output]))
    spelled = bytes(byte for e in entries for byte in e.bytes or ())
    assert spelled.decode().lstrip() == "x👩日"
    for shown in [*entries, *(top for e in entries for top in e.top_logprobs)]:
        assert shown.token
        assert "\ufffd" not in shown.token
        assert shown.token == bytes(shown.bytes or []).decode("utf-8", "backslashreplace")


def test_a_token_of_half_a_character_is_spelled_as_openai_does() -> None:
    output = tokenizer("smollm2").encode("👩", add_special_tokens=False).ids
    tokens = [e.token for e in chat("smollm2", chunk_of(output, [entry(i) for i in output]))]
    assert "".join(tokens) == "\\xf0\\x9f\\x91\\xa9"


def test_every_token_has_its_own_alternatives() -> None:
    """R61: in a chunk of several ids too, and in the next chunk again."""
    first = chat("smollm2", chunk_of([504, 505, 506], [entry(504, 1000, 1001), entry(505, 1002), entry(506)]))
    assert [[top.logprob for top in e.top_logprobs] for e in first] == [[-1.0, -2.0], [-1.0], []]
    own = tokenizer("smollm2")
    assert [[top.token for top in e.top_logprobs] for e in first] == [
        [own.decode([1000]), own.decode([1001])],
        [own.decode([1002])],
        [],
    ]


def test_special_tokens_spell_themselves() -> None:
    special = special_ids("smollm2")[2]
    (shown,) = chat("smollm2", chunk_of([special], [entry(special)]))
    assert shown.token == tokenizer("smollm2").id_to_token(special)


def test_older_workers_name_tokens_as_text() -> None:
    (shown,) = chat("smollm2", chunk_of([504], [{"token": "token_id:504", "logprob": -0.5}]))
    assert shown.token == tokenizer("smollm2").decode([504])


def test_tokens_may_be_asked_for_as_ids() -> None:
    request = {"messages": [{"role": "user", "content": "x"}], "return_tokens_as_token_ids": True}
    (shown,) = chat("smollm2", chunk_of([504], [entry(504)]), chat_request=request)
    assert shown.token == "token_id:504"


def test_completions_logprobs_are_parallel_lists() -> None:
    own = tokenizer("smollm2")
    output = own.encode("the cat sat", add_special_tokens=False).ids
    body = {"stream": True, "generate_chunk": chunk_of(output, [entry(i, i) for i in output])}
    answer = derender_completion_chunk(derenderer("smollm2"), DerenderCompletionStreamRequest.model_validate(body))
    (choice,) = answer.chunk.choices
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens) == choice.text == "the cat sat"
    assert choice.logprobs.text_offset == [0, 3, 7]
    assert choice.logprobs.token_logprobs == [-0.5] * 3
    assert choice.logprobs.top_logprobs == [{token: -1.0} for token in choice.logprobs.tokens]
