"""The laws of streaming derender, over the pure functions: any chunking, any replica, one answer."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derender_service.batch import derender_chat, derender_completion
from derender_service.derenderer import Derenderer
from derender_service.stream import derender_chat_chunk, derender_completion_chunk
from protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from service_kit.models import ServedModel
from tests.derender.kit import TABLED, cut, ids, tokenizer
from tests.tokenizers import profile

JsonObject = dict[str, Any]
STATE_LIMIT = 4096


@cache
def derenderer(name: str) -> Derenderer:
    return Derenderer.of(profile(name), ServedModel(name, name, 0), max_logprobs=5)


def entry(token_id: int, top: list[int]) -> JsonObject:
    candidates = [{"token_id": t, "logprob": -0.5 - n, "rank": n + 1} for n, t in enumerate(top)]
    return {"token_id": token_id, "logprob": -0.25, "rank": 1, "top_logprobs": candidates}


def generate_chunks(chunks: list[list[int]], finish: str | None, stop_reason: Any, logprobs: bool) -> list[JsonObject]:
    """A generate stream: tokens, then (where it ends) a chunk that finishes. One state, so one choice."""
    stream = []
    for number, chunk in enumerate(chunks):
        last = number == len(chunks) - 1 and finish is not None
        choice: JsonObject = {"index": 0, "token_ids": chunk, "finish_reason": finish if last else None}
        choice["stop_reason"] = stop_reason if last else None
        if logprobs:
            choice["logprobs"] = {"content": [entry(i, [i, (i + 1) % 300]) for i in chunk]}
        stream.append({"request_id": "req-1", "created": 1_764_400_000, "choices": [choice]})
    return stream


def completion_stream(name: str, stream: list[JsonObject], context: JsonObject) -> list[JsonObject]:
    """Answers' chunks. Every body goes through JSON, every request is made twice (L4), the context goes with the first alone."""
    answers, state = [], None
    for number, chunk in enumerate(stream):
        body: JsonObject = {"stream": True, "model": name, "generate_chunk": chunk, "stream_state": state}
        if number == 0:
            body |= context
        raw = json.dumps(body)
        request = DerenderCompletionStreamRequest.model_validate_json(raw)
        answer = derender_completion_chunk(derenderer(name), request).wire()
        again = DerenderCompletionStreamRequest.model_validate_json(raw)
        assert derender_completion_chunk(derenderer(name), again).wire() == answer
        decoded = json.loads(answer)
        state = decoded["stream_state"]
        assert len(json.dumps(state)) < STATE_LIMIT
        answers.append(decoded["chunk"])
    return answers


def assembled(chunks: list[JsonObject]) -> JsonObject:
    """What a client has at the end; with it L6: one finish, and nothing after it."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    finishes = [n for n, choice in enumerate(choices) if choice["finish_reason"] is not None]
    assert finishes in ([], [len(choices) - 1])
    logprobs: dict[str, list[Any]] = {}
    for choice in choices:
        for key, values in (choice["logprobs"] or {}).items():
            logprobs.setdefault(key, []).extend(values)
    return {
        "text": "".join(choice["text"] for choice in choices),
        "finish": [choices[n]["finish_reason"] for n in finishes],
        "stop_reason": [choices[n]["stop_reason"] for n in finishes],
        "token_ids": [i for choice in choices for i in choice.get("token_ids", [])],
        "logprobs": logprobs,
    }


@st.composite
def outputs(draw: st.DrawFn, name: str) -> tuple[list[int], str, Any]:
    """Ids of an output, how it finished, and the stop reason: by eos, by a stop id, by something that left no token, by length."""
    token_ids = draw(ids(name))
    how = draw(st.sampled_from(["eos", "stop_id", "plain", "length"]))
    if how == "eos" and profile(name).eos_token_ids:
        return [*token_ids, profile(name).eos_token_ids[0]], "stop", None
    if how == "stop_id" and token_ids:
        return token_ids, "stop", token_ids[-1]
    return token_ids, "length" if how == "length" else "stop", None


@st.composite
def requests(draw: st.DrawFn, name: str, output: list[int]) -> JsonObject:
    """A completion request with some of everything that bears on its text, stop strings from the text itself among it."""
    text = tokenizer(name).decode(output)
    own = [text[a : a + 3] for a in draw(st.lists(st.integers(0, max(0, len(text) - 1)), max_size=2)) if text[a : a + 3]]
    request: JsonObject = {"prompt": "x", "return_token_ids": draw(st.booleans()), "echo": draw(st.booleans())}
    request["stop"] = draw(st.sampled_from([[], own, [*own, "zzz"]])) or None
    request["include_stop_str_in_output"] = draw(st.booleans())
    request["skip_special_tokens"] = draw(st.booleans())
    request["min_tokens"] = draw(st.sampled_from([0, 0, 3]))
    return request


@pytest.mark.parametrize("name", TABLED)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_chunking_gives_the_batch_answer(name: str, data: st.DataObject) -> None:
    """L1 to L4 and L6: text, finish, stop reason, ids and logprobs of any stream equal those of the whole answer."""
    output, finish, stop_reason = data.draw(outputs(name))
    request = data.draw(requests(name, output))
    prompt = tokenizer(name).encode("the cat", add_special_tokens=False).ids
    if isinstance(stop_reason, int):
        request["stop_token_ids"] = [stop_reason]
    context = {"completion_request": request, "prompt_token_ids": prompt}
    logprobs = data.draw(st.booleans())
    stream = generate_chunks(data.draw(cut(output)), finish, stop_reason, logprobs)
    streamed = assembled(completion_stream(name, stream, context))

    choice = generate_chunks([output], finish, stop_reason, logprobs)[0]["choices"][0]
    batch = {"generate_responses": [{"request_id": "req-1", "choices": [choice]}]}
    body = {**batch, "completion_request": request, "prompt_token_ids": [prompt]}
    whole = derender_completion(derenderer(name), DerenderCompletionRequest.model_validate(body))
    assert streamed == assembled([json.loads(whole.wire())])
    assert whole.usage is not None
    used = whole.usage.completion_tokens
    assert used is not None
    assert used <= len(output)
    if request["return_token_ids"]:
        assert streamed["token_ids"] == output[:used]


@pytest.mark.parametrize("name", ["smollm2", "tiny"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_chat_says_the_same_as_completions(name: str, data: st.DataObject) -> None:
    """Without a parser a chat's content is a completion's text; the role comes once, with the first chunk that has a choice."""
    output, finish, stop_reason = data.draw(outputs(name))
    stream = generate_chunks(data.draw(cut(output)), finish, stop_reason, logprobs=False)
    usage_only = {"request_id": "req-1", "choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1}}
    stop_ids = [stop_reason] if isinstance(stop_reason, int) else []
    asked = {"messages": [{"role": "user", "content": "x"}], "stop_token_ids": stop_ids}
    texts, roles, state = [], [], None
    for chunk in [usage_only, *stream]:
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state, "prompt_tokens": 7, "chat_request": asked}
        answer = derender_chat_chunk(derenderer(name), DerenderChatStreamRequest.model_validate(body))
        state = json.loads(answer.wire())["stream_state"]
        if not answer.chunk.choices:
            assert answer.chunk.usage is not None
            assert answer.chunk.usage.prompt_tokens == 7
        roles += [choice.delta.role for choice in answer.chunk.choices]
        texts += [choice.delta.content or "" for choice in answer.chunk.choices]
    assert roles == ["assistant"] + [None] * (len(roles) - 1)
    context = {"completion_request": {"prompt": "x", "stop_token_ids": stop_ids}}
    assert "".join(texts) == assembled(completion_stream(name, stream, context))["text"]
    response = {"request_id": "req-1", "choices": [stream[-1]["choices"][0] | {"token_ids": output}]}
    batch = {"generate_response": response, "chat_request": asked}
    whole = derender_chat(derenderer(name), DerenderChatRequest.model_validate(batch))
    assert whole.choices[0].message.content == "".join(texts)


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "tiny"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_text_offsets_say_where_each_token_begins(name: str, data: st.DataObject) -> None:
    """Absolute, echoed text counted, whatever the chunks; a token that ends a character begins where that does."""
    output = data.draw(ids(name))
    request = {"prompt": "x", "echo": data.draw(st.booleans()), "logprobs": 1}
    prompt = tokenizer(name).encode("the cat", add_special_tokens=False).ids
    stream = generate_chunks(data.draw(cut(output)), "length", None, logprobs=True)
    answer = assembled(completion_stream(name, stream, {"completion_request": request, "prompt_token_ids": prompt}))
    offsets = answer["logprobs"].get("text_offset", [])
    assert len(offsets) == len(output)
    assert offsets == sorted(offsets)
    assert all(0 <= offset <= len(answer["text"]) for offset in offsets)
    if output:
        assert offsets[0] == (len(tokenizer(name).decode(prompt)) if request["echo"] else 0)
    for place in range(len(output)):
        cut_here = generate_chunks([output[:place]], None, None, logprobs=False)
        before = completion_stream(name, cut_here, {"completion_request": request, "prompt_token_ids": prompt})
        assert offsets[place] == sum(len(choice["text"]) for chunk in before for choice in chunk["choices"])


def test_choices_with_states_of_their_own_do_not_meet() -> None:
    """n > 1: interleaved choices, one state each, read as if each were alone."""
    outputs_ = [tokenizer("smollm2").encode(text, add_special_tokens=False).ids for text in ("日本 one", "👩 two")]
    alone = [
        assembled(completion_stream("smollm2", generate_chunks([[i] for i in o], "length", None, False), {})) for o in outputs_
    ]
    states: list[JsonObject | None] = [None, None]
    texts = ["", ""]
    for step in range(max(map(len, outputs_))):
        for index, output in enumerate(outputs_):
            chunk = {"request_id": "r", "choices": [{"index": index, "token_ids": output[step : step + 1]}]}
            body = {"stream": True, "generate_chunk": chunk, "stream_state": states[index]}
            answer = derender_completion_chunk(derenderer("smollm2"), DerenderCompletionStreamRequest.model_validate(body))
            states[index] = json.loads(answer.wire())["stream_state"]
            assert [choice.index for choice in answer.chunk.choices] == [index]
            texts[index] += answer.chunk.choices[0].text
    assert texts == [each["text"] for each in alone]


def test_a_window_made_by_vllm_goes_on_here() -> None:
    """vLLM's state names its last tokens and how far they were shown; a character it waits for is finished here."""
    own = tokenizer("smollm2")
    emoji = own.encode("ok 👩", add_special_tokens=False).ids
    shown, waiting = emoji[0], emoji[1:-1]
    state = {
        "prev_tokens": [own.id_to_token(i) for i in (shown, *waiting)],
        "prefix_offset": 0,
        "read_offset": 1,
        "role_sent": True,
        "logprob_context_token_ids": [],
        "logprob_text_offset": 2,
        "output_token_ids": [],
        "output_chunk_lens": [],
        "tools_streamed": False,
        "last_tool_call_ids": [],
    }
    chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": emoji[-1:]}]}
    body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
    answer = derender_completion_chunk(derenderer("smollm2"), DerenderCompletionStreamRequest.model_validate(body))
    assert answer.chunk.choices[0].text == own.decode(emoji).removeprefix(own.decode([shown]))


def test_the_primary_eos_is_no_stop_reason_whoever_says_so() -> None:
    """A worker that knows no eos reports it as the stop id that the request brought; asked for by the client it is one."""
    eos = profile("smollm2").eos_token_ids[0]
    reasons = []
    for asked in ([], [eos]):
        stream = generate_chunks([[504], [eos]], "stop", eos, False)
        context = {"completion_request": {"prompt": "x", "stop_token_ids": asked}}
        answer = assembled(completion_stream("smollm2", stream, context))
        assert answer["text"] == tokenizer("smollm2").decode([504])
        reasons += answer["stop_reason"]
    assert reasons == [None, eos]
