"""Many chunks per call: each item is answered as its own route would have answered it, whatever stands beside it."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from derender_service import many
from derender_service.app import create_app
from derender_service.derenderer import Derenderer
from derender_service.many import SLICE_BYTES, SLICE_ITEMS, slices
from protocol.derender import DerenderChatStreamRequest
from protocol.derender_transports import BATCH_PATH, MAX_ITEMS
from protocol.errors import BadRequest
from service_kit.json_array import elements
from tests.derender.kit import cut, ids
from tests.derender.test_http import CHAT, COMPLETION, JsonObject, chunk, json_values, metric, mutated, settings_for
from tests.derender.test_streams import generate_chunks
from tests.live import serving

ROUTES = {CHAT: "chat_request", COMPLETION: "completion_request"}
ORIGINAL: JsonObject = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "stop": ["cat"], "logprobs": None}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    limit = {"max_body_bytes": 64 * 1024 * 1024}
    with (
        serving(create_app(settings_for("smollm2").model_copy(update=limit))) as url,
        httpx.Client(base_url=url, timeout=60) as own,
    ):
        yield own


def item(path: str = CHAT, **fields: Any) -> JsonObject:
    return {"endpoint": path, "stream": True, "generate_chunk": chunk(), "created": 1_764_400_000, **fields}


def sent(client: httpx.Client, items: list[Any]) -> list[JsonObject]:
    answer = client.post(BATCH_PATH, content=json.dumps(items)).raise_for_status()
    listed: list[JsonObject] = answer.json()
    assert len(listed) == len(items)
    return listed


def alone(client: httpx.Client, body: JsonObject) -> JsonObject:
    answer = client.post(body["endpoint"], content=json.dumps(body))
    return {"status": answer.status_code, **answer.json()}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_streams_driven_together_equal_streams_driven_alone(client: httpx.Client, data: st.DataObject) -> None:
    """Chat and completions mixed, some further on than others, each with the state of its own last answer."""
    count = data.draw(st.integers(1, 40))
    paths = [data.draw(st.sampled_from(sorted(ROUTES))) for _ in range(count)]
    kinds = [generate_chunks(data.draw(cut(data.draw(ids("smollm2")))), "length", None, logprobs=False) for _ in range(3)]
    streams = [kinds[data.draw(st.integers(0, 2))] for _ in range(count)]
    states: list[JsonObject | None] = [None] * count
    for number in range(max(map(len, streams))):
        live = [n for n in range(count) if number < len(streams[n])]
        items = []
        for n in live:
            context = {ROUTES[paths[n]]: ORIGINAL, "prompt_token_ids": [504]} if states[n] is None else {"stream_state": states[n]}
            named = {"endpoint": paths[n]} if data.draw(st.booleans()) else {}
            items.append({**named, "stream": True, "generate_chunk": streams[n][number], **context})
        raw = client.post(BATCH_PATH, content=json.dumps(items)).content
        singles = [client.post(paths[n], content=json.dumps(body)) for n, body in zip(live, items, strict=True)]
        assert raw == b"[" + b",".join(b'{"status":200,%b' % single.raise_for_status().content[1:] for single in singles) + b"]"
        answers = json.loads(raw)
        for n, answer in zip(live, answers, strict=True):
            states[n] = answer["stream_state"]


BAD: list[tuple[Any, int, str | None]] = [
    (5, 400, None),
    (None, 400, None),
    ("text", 400, None),
    ([], 400, None),
    ({}, 400, "generate_chunk"),
    (item("/v1/other"), 400, "endpoint"),
    (item(None), 400, "endpoint"),  # type: ignore[arg-type]
    (item(stream=False), 400, "stream"),
    ({"endpoint": CHAT}, 400, "generate_chunk"),
    (item(generate_chunk=chunk(token_ids=["5"])), 400, "generate_chunk.choices.0.token_ids.0"),
    (item(generate_chunk=chunk(token_ids=[49152])), 400, "generate_chunk.choices.0.token_ids.0"),
    (item(stream_state={"spare": 1}), 400, "stream_state.spare"),
    (item(stream_state={"profile": "other"}), 409, "profile"),
    (item(model="nope"), 404, "model"),
    (item(prompt_tokens=10**2000), 400, "prompt_tokens"),
    (item(COMPLETION, completion_request={"prompt": "x", "echo": True}), 400, "prompt_token_ids"),
]


@pytest.mark.parametrize("padding", [0, 100], ids=["in place", "in the pool"])
def test_bad_items_harm_no_other(client: httpx.Client, padding: int) -> None:
    """L9 for each item by itself; those with a right endpoint get the very bytes of its own route."""
    good = item(generate_chunk=chunk(token_ids=[504]))
    items = [part for bad, _, _ in BAD for part in (good, bad)] + [good] * padding
    answers = sent(client, items)
    fine = alone(client, good)
    assert fine["status"] == 200
    assert answers[::2][: len(BAD)] == [fine] * len(BAD)
    assert answers[2 * len(BAD) :] == [fine] * padding
    for (bad, status, param), answer in zip(BAD, answers[1 : 2 * len(BAD) : 2], strict=True):
        assert (answer["status"], answer["error"]["param"]) == (status, param)
        assert answer["error"]["message"]
        if isinstance(bad, dict) and bad.get("endpoint") in ROUTES and bad.get("stream"):
            assert answer == alone(client, bad)


@pytest.mark.parametrize(
    "broken",
    [
        b'{"generate_chunk": "\\ud800"}',
        b"{]",
        b'{"a": "\xff"}',
        b"nonsense",
        b"1e",
        b'{"a" 1}',
        b"[" * 300 + b"]" * 300,
        b"9" * 5000,
    ],
)
def test_an_item_that_is_no_json_is_its_own_error(client: httpx.Client, broken: bytes) -> None:
    fine = json.dumps(item()).encode()
    answer = client.post(BATCH_PATH, content=b"[" + fine + b", " + broken + b" ,\n" + fine + b"]").raise_for_status().json()
    assert [each["status"] for each in answer] == [200, 400, 200]


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"{}", b"null", b'"[]"', b"[", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1,,2]", b"[]]", b"[] 1", b'["', b'["\\"]', b"[}",
     b'{"items": []}', b"\xff\xfe[]"],
)  # fmt: skip
def test_a_body_that_is_no_array_is_refused_whole(client: httpx.Client, body: bytes) -> None:
    answer = client.post(BATCH_PATH, content=body)
    assert answer.status_code == 400
    assert "array" in answer.json()["error"]["message"]


def test_the_number_of_items_is_bounded_and_none_is_fine(client: httpx.Client) -> None:
    assert sent(client, []) == []
    assert client.post(BATCH_PATH, content=b" [ \n ] ").json() == []
    assert len(sent(client, [0] * MAX_ITEMS)) == MAX_ITEMS
    refused = client.post(BATCH_PATH, json=[0] * (MAX_ITEMS + 1))
    assert refused.status_code == 400
    assert str(MAX_ITEMS) in refused.json()["error"]["message"]


@given(st.lists(json_values, max_size=6), st.booleans())
@example(values=["\\", '"', "a,b", "[", "{}", '\\"]'], spaced=True)
def test_an_array_is_cut_where_its_elements_end(values: list[Any], spaced: bool) -> None:
    body = json.dumps(values, indent=1 if spaced else None).encode()
    assert [json.loads(element) for element in elements(body, limit=6)] == values


@given(st.binary(max_size=60) | st.text('[]{},"\\ 1a', max_size=60).map(str.encode))
def test_any_bytes_are_cut_or_refused(body: bytes) -> None:
    """And whatever the JSON library reads as an array is cut into the same elements."""
    try:
        found: list[bytes] | None = elements(body, limit=60)
    except BadRequest:
        found = None
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return
    assert (found is not None) == isinstance(whole, list)
    if found is not None:
        assert [json.loads(element) for element in found] == whole


@pytest.mark.parametrize(
    "body", [b'["' + b'\\"' * 500_000, b"[" * 200_000, b'[{"' + b'a":{"' * 100_000, b"[" + b'"",' * 4000 + b'"']
)
def test_cutting_takes_linear_time(body: bytes) -> None:
    started = time.perf_counter()
    with pytest.raises(BadRequest):
        elements(body, limit=MAX_ITEMS)
    assert time.perf_counter() - started < 5


@given(st.lists(st.integers(0, 3 * SLICE_BYTES), max_size=80))
def test_slices_keep_the_order_and_are_bounded(sizes: list[int]) -> None:
    items = [bytes(size) for size in sizes]
    parts = list(slices(items))
    assert [each for part in parts for each in part] == items
    for part in parts:
        assert 0 < len(part) <= SLICE_ITEMS
        assert sum(map(len, part[:-1])) < SLICE_BYTES


def test_a_bug_in_one_item_is_that_items_500(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    work = many.derender_chat_chunk

    def sometimes(derenderer: Derenderer, request: DerenderChatStreamRequest) -> Any:
        if request.prompt_tokens == 13:
            raise ZeroDivisionError
        return work(derenderer, request)

    monkeypatch.setattr(many, "derender_chat_chunk", sometimes)
    answers = sent(client, [item(), item(prompt_tokens=13), item()])
    assert [answer["status"] for answer in answers] == [200, 500, 200]
    assert answers[1]["error"]["type"] == "InternalServerError"


def test_states_are_signed_and_checked_in_batches_too() -> None:
    with serving(create_app(settings_for("smollm2", state_key="key"))) as url, httpx.Client(base_url=url) as client:
        (first,) = sent(client, [item()])
        state = first["stream_state"]
        assert len(state["signature"]) == 43
        answers = sent(client, [item(stream_state=state), item(stream_state={**state, "role_sent": False}), item()])
        assert [answer["status"] for answer in answers] == [200, 400, 200]
        assert answers[1]["error"]["param"] == "stream_state.signature"


def test_items_and_tokens_are_counted(client: httpx.Client) -> None:
    def counts() -> list[float]:
        names = ('items_total{status="200"}', 'items_total{status="400"}', 'tokens_total{mode="stream"}')
        return [metric(client, f"tandem_derender_{name}") for name in names]

    before = counts()
    sent(client, [item(), 5, item(generate_chunk=chunk(token_ids=[1, 2, 3]))])
    assert [after - old for after, old in zip(counts(), before, strict=True)] == [2, 1, 4]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_among_good_items_breaks_nothing(client: httpx.Client, data: st.DataObject) -> None:
    good = item()
    body = data.draw(mutated([good, item(stream_state={"token_count": 1}), item(COMPLETION)]))
    answer = client.post(BATCH_PATH, content=json.dumps(body))
    if not isinstance(body, list):
        assert answer.status_code == 400
        return
    answers = answer.raise_for_status().json()
    assert len(answers) == len(body)
    for each, told in zip(body, answers, strict=True):
        assert told["status"] in (200, 400, 404, 409)
        if each == good:
            assert told["status"] == 200


@pytest.mark.slow
def test_a_big_batch_does_not_stall_a_single_chunk(client: httpx.Client) -> None:
    """While batches of 2,000 items are being answered, other calls take their turn between slices."""
    body = json.dumps([item()] * 2000)
    stop = threading.Event()

    def load() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            while not stop.is_set():
                own.post(BATCH_PATH, content=body).raise_for_status()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        taken = []
        for _ in range(60):
            started = time.perf_counter()
            client.post(CHAT, json=item()).raise_for_status()
            taken.append(time.perf_counter() - started)
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()
    assert sorted(taken)[len(taken) // 2] < 0.1
