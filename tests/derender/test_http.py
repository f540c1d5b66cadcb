"""Derender as its clients see it: real ports, bodies of every kind, two replicas that know nothing of each other."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from derender_service.app import DerenderSettings, create_app
from tests.derender.kit import cut, ids, tokenizer
from tests.derender.test_streams import assembled, completion_stream, generate_chunks
from tests.live import serving
from tests.tokenizers import folder, profile

JsonObject = dict[str, Any]
CHAT, COMPLETION = "/v1/chat/completions/derender", "/v1/completions/derender"
LIMIT = 100_000


def settings_for(name: str, **changes: Any) -> DerenderSettings:
    return DerenderSettings(model=str(folder(name)), served_model_name=name, max_body_bytes=LIMIT, **changes)


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[httpx.Client]]:
    """Two replicas of one service."""
    with (
        serving(create_app(settings_for("smollm2"))) as one,
        serving(create_app(settings_for("smollm2"))) as two,
        httpx.Client(base_url=one) as first,
        httpx.Client(base_url=two) as second,
    ):
        yield [first, second]


@pytest.fixture(scope="module")
def client(replicas: list[httpx.Client]) -> httpx.Client:
    return replicas[0]


def chunk(**choice: Any) -> JsonObject:
    return {"request_id": "r", "choices": [{"index": 0, "token_ids": [504], **choice}]}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_two_replicas_taking_turns_equal_one(replicas: list[httpx.Client], data: st.DataObject) -> None:
    """Law L4, and L1 and L2 over HTTP: each chunk posted to both gives the same bytes, whoever made the state."""
    output = data.draw(ids("smollm2"))
    context = {"completion_request": {"prompt": "x", "stop": ["cat"]}, "prompt_token_ids": [504, 2365]}
    stream = generate_chunks(data.draw(cut(output)), "length", None, logprobs=data.draw(st.booleans()))
    state, chunks = None, []
    for number, piece in enumerate(stream):
        body = {"stream": True, "generate_chunk": piece, "stream_state": state, **(context if number == 0 else {})}
        answers = [replica.post(COMPLETION, json=body) for replica in replicas[:: 1 if number % 2 else -1]]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].content == answers[1].content
        state, piece = answers[0].json()["stream_state"], answers[0].json()["chunk"]
        chunks.append(piece)
    assert assembled(chunks) == assembled(completion_stream("smollm2", stream, context))


def test_an_answer_names_its_request(client: httpx.Client) -> None:
    given_id = client.post(CHAT, json={"stream": True, "generate_chunk": chunk()}, headers={"X-Request-Id": "abc-1"})
    assert given_id.headers["x-request-id"] == "abc-1"
    own = client.post(CHAT, content=b"{", headers={"X-Request-Id": "too-long-" * 40})
    assert own.status_code == 400
    assert len(own.headers["x-request-id"]) == 32


BAD: list[tuple[str, bytes | JsonObject | list[Any], int, str | None]] = [
    (CHAT, b"", 400, None),
    (CHAT, b"{", 400, None),
    (CHAT, b"\xff\xfe", 400, None),
    (CHAT, [], 400, None),
    (CHAT, b'"text"', 400, None),
    (CHAT, b"null", 400, None),
    (CHAT, {}, 400, "generate_response"),
    (COMPLETION, {}, 400, "generate_responses"),
    (COMPLETION, {"generate_responses": []}, 400, "generate_responses"),
    (CHAT, {"stream": True}, 400, "generate_chunk"),
    (CHAT, {"stream": "yes", "generate_chunk": chunk()}, 400, "stream"),
    (CHAT, {"stream": True, "generate_chunk": 5}, 400, "generate_chunk"),
    (CHAT, {"stream": True, "generate_chunk": chunk(token_ids=[-1])}, 400, "generate_chunk.choices.0.token_ids.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(token_ids=[1, 49152])}, 400, "generate_chunk.choices.0.token_ids.1"),
    (CHAT, {"stream": True, "generate_chunk": chunk(token_ids=[10**30])}, 400, "generate_chunk.choices.0.token_ids.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(token_ids=["5"])}, 400, "generate_chunk.choices.0.token_ids.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(token_ids=[1.5])}, 400, "generate_chunk.choices.0.token_ids.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(index=-1)}, 400, "generate_chunk.choices.0.index"),
    (CHAT, {"stream": True, "generate_chunk": chunk(finish_reason="done")}, 400, "generate_chunk.choices.0.finish_reason"),
    (CHAT, {"stream": True, "generate_chunk": chunk(logprobs={"content": []})}, 400, "generate_chunk.choices.0.logprobs"),
    (CHAT, {"stream": True, "generate_chunk": {"choices": chunk()["choices"] * 2}}, 400, "generate_chunk.choices"),
    (CHAT, {"stream": True, "generate_chunk": {"error": {"message": "boom", "type": "x"}}}, 400, "generate_chunk.error"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "prompt_token_ids": [10**6]}, 400, "prompt_token_ids.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "prompt_tokens": -1}, 400, "prompt_tokens"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "prompt_tokens": 10**6}, 400, "generate_chunk.choices.0.token_ids"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "chat_request": {"messages": []}}, 400, "chat_request.messages"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "stream_state": {"spare": 1}}, 400, "stream_state.spare"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "stream_state": {"read_offset": 1}}, 400, "stream_state.read_offset"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "stream_state": {"profile": "other"}}, 409, "profile"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "profile": "other"}, 409, "profile"),
    (CHAT, {"stream": True, "model": "nope", "generate_chunk": chunk()}, 404, "model"),
    (CHAT, {"generate_response": {"request_id": "r", "choices": [{"index": 0, "token_ids": [49152]}]}}, 400,
     "generate_response.choices.0.token_ids.0"),
    (COMPLETION, {"generate_responses": [{"request_id": "r", "choices": []}], "prompt_tokens": [1, 2]}, 400, "prompt_tokens"),
    (COMPLETION, {"stream": True, "generate_chunk": chunk(), "completion_request": {"prompt": "x", "echo": True}}, 400,
     "prompt_token_ids"),
    (COMPLETION, {"stream": True, "generate_chunk": chunk(), "completion_request": {"prompt": "x", "stop": ["a" * 1025]}}, 400,
     "completion_request.stop.0"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "prompt_tokens": 10**2000}, 400, "prompt_tokens"),
    (CHAT, {"stream": True, "generate_chunk": chunk(), "stream_state": {"context": {"min_tokens": 10**2000}}}, 400,
     "stream_state.context.min_tokens"),
    (COMPLETION, {"stream": True, "generate_chunk": {"choices": []}, "prompt_token_ids": [504],
     "completion_request": {"prompt": "x", "echo": True}}, 400, "generate_chunk.choices"),
    (CHAT, b" " * (LIMIT + 1), 413, None),
    ("/v1/nothing", {}, 404, None),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "param"), BAD)
def test_bad_input_is_refused_with_its_place(
    client: httpx.Client, path: str, body: bytes | JsonObject | list[Any], status: int, param: str | None
) -> None:
    """Law L9."""
    answer = client.post(path, content=body if isinstance(body, bytes) else json.dumps(body))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert error["message"]
    assert error["type"]


def test_a_body_that_does_not_say_its_length_is_bounded_too(client: httpx.Client) -> None:
    answer = client.post(CHAT, content=(b" " * 1000 for _ in range(LIMIT // 1000 + 2)))
    assert answer.status_code == 413


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with something in it replaced, taken away or added."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: draw(mutated(value[key]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(mutated(value[place])), *value[place + 1 :]]
    if isinstance(value, dict) and value and draw(st.booleans()):
        gone = draw(st.sampled_from(sorted(value)))
        return {k: v for k, v in value.items() if k != gone}
    if isinstance(value, int) and not isinstance(value, bool) and draw(st.booleans()):
        return draw(st.integers(-2, 60_000))
    if isinstance(value, str) and draw(st.booleans()):
        return draw(st.text(max_size=20) | st.sampled_from(["<0xE4>", "Ġä", "<|im_end|>", "\ud800", "\0"]))
    return draw(json_values)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_never_breaks_the_service(client: httpx.Client, data: st.DataObject) -> None:
    """L9: whatever a client makes of a valid body, the answer is an answer or a 4xx, and never takes long."""
    emoji = tokenizer("smollm2").encode("日本 👩", add_special_tokens=False).ids
    context = {"completion_request": {"prompt": "x", "stop": ["zz"], "logprobs": 1}, "prompt_token_ids": emoji[:2]}
    stream = generate_chunks([emoji[:-2], emoji[-2:]], "stop", 2, logprobs=True)
    state: JsonObject = {
        "prev_tokens": ["ĠðŁ", "ĺ"], "prefix_offset": 0, "read_offset": 1, "role_sent": True, "logprob_context_token_ids": [5, 6],
        "logprob_text_offset": 7, "created": 5, "profile": profile("smollm2").fingerprint, "token_count": 3, "held_text": "z",
        "context": {"stop": ["zz"], "prompt_tokens": 2, "min_tokens": 1},
    }  # fmt: skip
    body = data.draw(mutated({"stream": True, "generate_chunk": stream[1], "stream_state": state, **context}))
    answer = client.post(data.draw(st.sampled_from([CHAT, COMPLETION])), content=json.dumps(body))
    assert answer.status_code in (200, 400, 404, 409)
    if answer.is_error:
        assert answer.json()["error"]["message"]


def test_usage_passes_through_with_the_prompts_count(client: httpx.Client) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}
    body = {"stream": True, "prompt_tokens": 5, "generate_chunk": {"request_id": "r", "choices": [], "usage": usage}}
    told = client.post(CHAT, json=body).json()["chunk"]
    assert told["choices"] == []
    assert told["usage"] == {**usage, "prompt_tokens": 5, "total_tokens": 14}


def test_metrics_count_tokens_and_requests(client: httpx.Client) -> None:
    before = metric(client, 'tandem_derender_tokens_total{mode="stream"}')
    client.post(CHAT, json={"stream": True, "generate_chunk": chunk(token_ids=[504, 2365])})
    assert metric(client, 'tandem_derender_tokens_total{mode="stream"}') == before + 2
    assert metric(client, f'tandem_requests_total{{route="{CHAT}",status="200"}}') > 0
    assert metric(client, "tandem_requests_in_flight") == 1  # the request for the metrics


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " ")), 0.0)


def test_the_openapi_document_names_every_type(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    references = set()

    def walk(node: Any) -> None:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(value)
        if isinstance(node, dict) and "$ref" in node:
            references.add(node["$ref"].removeprefix("#/components/schemas/"))

    walk(document)
    assert references <= set(document["components"]["schemas"])
    asked = document["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert [ref["$ref"].rsplit("/", 1)[1] for ref in asked] == ["DerenderChatRequest", "DerenderChatStreamRequest"]


def test_an_api_key_guards_everything_but_health_and_metrics() -> None:
    with serving(create_app(settings_for("tiny", api_key="secret"))) as url, httpx.Client(base_url=url) as client:
        assert client.get("/health").status_code == client.get("/metrics").status_code == 200
        refused = client.post(CHAT, json={})
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "AuthenticationError")
        assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
