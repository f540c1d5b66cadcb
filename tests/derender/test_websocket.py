"""Streams over WebSockets: the same answers as over HTTP, with the state kept by the connection."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from derender_service import websocket
from derender_service.app import DerenderSettings, create_app
from derender_service.derenderer import Derenderer
from protocol.derender import DerenderChatStreamRequest
from protocol.sampling import MAX_CHOICES
from service_kit.lifecycle import Server, configured
from service_kit.offload import INLINE_BYTES
from tests.derender.kit import cut, ids
from tests.derender.test_http import CHAT, COMPLETION, LIMIT, JsonObject, chunk, metric, mutated, settings_for
from tests.derender.test_many import ORIGINAL, ROUTES
from tests.derender.test_streams import generate_chunks
from tests.live import serving

SIGNED = {"state_key": "key"}


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    """Two replicas that sign their states, with one key."""
    with (
        serving(create_app(settings_for("smollm2", **SIGNED))) as one,
        serving(create_app(settings_for("smollm2", **SIGNED))) as two,
    ):
        yield [one, two]


@pytest.fixture(scope="module")
def client(urls: list[str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=urls[0]) as own:
        yield own


def opened(url: str, path: str = CHAT, **options: Any) -> ClientConnection:
    return connect(f"{url.replace('http', 'ws', 1)}{path}/ws", compression=None, max_size=None, **options)


def told(connection: ClientConnection, message: Any) -> JsonObject:
    connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
    answer = connection.recv(timeout=10)
    assert isinstance(answer, str)
    read: JsonObject = json.loads(answer)
    return read


def beginning(path: str) -> JsonObject:
    return {ROUTES[path]: ORIGINAL, "prompt_token_ids": [504]}


@st.composite
def streams(draw: st.DrawFn, index: int = 0) -> list[JsonObject]:
    """A generate stream of one choice that comes to its end."""
    made = generate_chunks(draw(cut(draw(ids("smollm2")))), "length", None, logprobs=draw(st.booleans()))
    return [{**piece, "choices": [{**piece["choices"][0], "index": index}]} for piece in made]


class OverHttp:
    """The same stream with one call per chunk: what the connection's answers are held to."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self.client, self.path, self.state = client, path, None

    def told(self, message: JsonObject) -> JsonObject:
        answer = self.client.post(self.path, json={"stream": True, **message, "stream_state": self.state})
        body: JsonObject = answer.raise_for_status().json()
        self.state = body["stream_state"]
        return body


def matches(answer: JsonObject, http: JsonObject, *, asked: bool) -> bool:
    """The chunk is the same, and the state too where it was asked for or the choice has ended; else there is none."""
    ended = any(choice["finish_reason"] for choice in http["chunk"]["choices"])
    return answer == (http if asked or ended else {"chunk": http["chunk"]})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_connection_answers_as_http_does_also_when_it_breaks_at_any_place(
    client: httpx.Client, urls: list[str], data: st.DataObject
) -> None:
    """The state is kept, given when asked for and at the end; with the last one the stream goes on at another replica (L4), from
    where that state was: the chunks since are sent again, and answered with the same chunks."""
    path = data.draw(st.sampled_from(sorted(ROUTES)))
    stream = data.draw(streams())
    http = OverHttp(client, path)
    expected = [http.told({"generate_chunk": piece, **(beginning(path) if not n else {})}) for n, piece in enumerate(stream)]
    asked = data.draw(st.lists(st.booleans(), min_size=len(stream), max_size=len(stream)))
    breaks = data.draw(st.integers(0, len(stream)))
    resumed: JsonObject = {}
    since = 0
    with opened(urls[0], path) as connection:
        for n, piece in enumerate(stream[:breaks]):
            head = beginning(path) if n == 0 else {}
            answer = told(connection, {**head, "generate_chunk": piece, "return_state": asked[n]})
            assert matches(answer, expected[n], asked=asked[n])
            if "stream_state" in answer:
                resumed, since = {"stream_state": answer["stream_state"]}, n + 1
    with opened(urls[1], path) as connection:
        for n, piece in enumerate(stream[since:], start=since):
            head = (resumed or beginning(path)) if n == since else {}
            answer = told(connection, {**head, "stream": True, "generate_chunk": piece, "return_state": asked[n]})
            assert matches(answer, expected[n], asked=asked[n])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_choices_share_a_connection_and_no_state(client: httpx.Client, urls: list[str], data: st.DataObject) -> None:
    both = [data.draw(streams(index=0)), data.draw(streams(index=1))]
    each = [OverHttp(client, CHAT), OverHttp(client, CHAT)]
    with opened(urls[0]) as connection:
        for n, pair in enumerate(zip_longest(*both)):
            for http, piece in zip(each, pair, strict=True):
                if piece is not None:
                    message = {"generate_chunk": piece, **(beginning(CHAT) if n == 0 else {})}
                    assert matches(told(connection, message), http.told(message), asked=False)
        # All that is left is the count of both, which belongs to no choice.
        usage = {"request_id": "r", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
        assert told(connection, {"generate_chunk": usage})["chunk"]["usage"]["completion_tokens"] == 2


def test_a_stream_may_begin_with_chunks_that_have_no_choice(client: httpx.Client, urls: list[str]) -> None:
    """What they say of the request and the prompt is said for every choice that follows."""
    empty = {"request_id": "r", "created": 5, "choices": []}
    first = {"generate_chunk": empty, **beginning(CHAT)}
    with opened(urls[0]) as connection:
        http = OverHttp(client, CHAT)
        assert matches(told(connection, first), http.told(first), asked=False)
        opening = http.state
        for index in (0, 1):
            http.state = opening
            for _ in range(2):
                message = {"generate_chunk": {**chunk(index=index), "created": 5}, "return_state": True}
                assert matches(told(connection, message), http.told(message), asked=True)


BAD: list[tuple[Any, int, str | None]] = [
    ("", 400, None),
    ("{", 400, None),
    ("[]", 400, None),
    (b"{}", 400, None),
    (b"\xff", 400, None),
    ({}, 400, "generate_chunk"),
    ({"stream": False, "generate_chunk": chunk()}, 400, "stream"),
    ({"return_state": "often", "generate_chunk": chunk()}, 400, "return_state"),
    ({"generate_chunk": chunk(token_ids=[49152])}, 400, "generate_chunk.choices.0.token_ids.0"),
    ({"generate_chunk": chunk(), "profile": "other"}, 409, "profile"),
    ({"generate_chunk": chunk(), "model": "nope"}, 404, "model"),
    ({"generate_chunk": chunk(), "stream_state": {"spare": 1}}, 400, "stream_state.spare"),
    ({"generate_chunk": chunk(), "stream_state": {"token_count": 7}}, 400, "stream_state.signature"),
    ({"generate_chunk": {"error": {"message": "boom", "type": "x"}}}, 400, "generate_chunk.error"),
]


def test_a_bad_message_is_answered_and_changes_nothing(client: httpx.Client, urls: list[str]) -> None:
    """L9: with the body that HTTP would answer, and the state as it was."""
    http = OverHttp(client, CHAT)
    with opened(urls[0]) as connection:
        first = {"generate_chunk": chunk(), "created": 5, **beginning(CHAT)}
        assert matches(told(connection, first), http.told(first), asked=False)
        for bad, code, param in BAD:
            answer = told(connection, bad)
            assert set(answer) == {"error"}
            assert (answer["error"]["code"], answer["error"]["param"]) == (code, param)
            if isinstance(bad, dict) and "generate_chunk" in bad and not {"stream", "return_state"} & set(bad):
                assert answer == client.post(CHAT, json={"stream": True, **bad}).json()
        after = {"generate_chunk": chunk(), "return_state": True}
        assert matches(told(connection, after), http.told(after), asked=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_never_breaks_a_connection(urls: list[str], data: st.DataObject) -> None:
    message = {"generate_chunk": chunk(), "return_state": True, "stream_state": None, **beginning(CHAT)}
    with opened(urls[0], data.draw(st.sampled_from(sorted(ROUTES)))) as connection:
        for garbage in data.draw(st.lists(mutated(message), min_size=1, max_size=4)):
            answer = told(connection, json.dumps(garbage))
            assert ("chunk" in answer) != ("error" in answer)


def test_a_bug_is_answered_with_its_500_and_the_connection_stays(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    work = websocket.derender_chat_chunk

    def sometimes(derenderer: Derenderer, request: DerenderChatStreamRequest) -> Any:
        if request.prompt_tokens == 13:
            raise ZeroDivisionError
        return work(derenderer, request)

    monkeypatch.setattr(websocket, "derender_chat_chunk", sometimes)
    with opened(urls[0]) as connection:
        assert told(connection, {"generate_chunk": chunk(), "prompt_tokens": 13})["error"]["code"] == 500
        assert "chunk" in told(connection, {"generate_chunk": chunk()})


def test_a_connection_keeps_so_many_states_and_no_more(urls: list[str]) -> None:
    with opened(urls[0]) as connection:
        for index in range(MAX_CHOICES):
            assert "chunk" in told(connection, {"generate_chunk": chunk(index=index)})
        refused = told(connection, {"generate_chunk": chunk(index=MAX_CHOICES)})
        assert refused["error"]["param"] == "generate_chunk.choices.0.index"
        assert "chunk" in told(connection, {"generate_chunk": chunk(index=0)})


def test_a_big_message_is_answered_too_and_a_too_big_one_closes(urls: list[str]) -> None:
    with opened(urls[0]) as connection:
        assert "chunk" in told(connection, json.dumps({"generate_chunk": chunk(), "unknown": "日" * INLINE_BYTES}))
        for too_big in (" " * (LIMIT + 1), "日" * (LIMIT // 3 + 1)):
            with opened(urls[0]) as other, pytest.raises(ConnectionClosed) as closed:
                told(other, too_big)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
            assert str(LIMIT) in closed.value.rcvd.reason
        with opened(urls[0]) as other, pytest.raises(ConnectionClosed) as closed:
            told(other, bytes(LIMIT + 1))
        assert "chunk" in told(connection, {"generate_chunk": chunk()})


def test_messages_sent_ahead_are_answered_in_order(urls: list[str]) -> None:
    with opened(urls[0]) as connection:
        for number in range(200):
            padding = "x" * (INLINE_BYTES if number % 7 == 0 else 0)
            connection.send(json.dumps({"generate_chunk": {**chunk(), "request_id": f"r{number}"}, "unknown": padding}))
        assert [json.loads(connection.recv(timeout=10))["chunk"]["id"] for _ in range(200)] == [f"r{n}" for n in range(200)]


def handshake(url: str) -> socket.socket:
    """A connection as bytes see it."""
    host, port = url.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=10)
    raw.sendall(HANDSHAKE)
    assert raw.recv(12) == b"HTTP/1.1 101"
    return raw


HANDSHAKE = (
    f"GET {CHAT}/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()
UNMASKED = b"\x00" * 4


@pytest.mark.parametrize(
    "sent",
    [b"", b"\x81\xfe\x10\x00abcd{", b"\x01\x81" + UNMASKED + b"{", b"\x81\x82" + UNMASKED + b"{}", b"\xff\xff"],
    ids=["after the handshake", "within a frame", "within a message", "before the answer", "with no frame at all"],
)
def test_a_client_that_vanishes_leaves_nothing_behind(urls: list[str], client: httpx.Client, sent: bytes) -> None:
    with handshake(urls[0]) as raw:
        raw.sendall(sent)
    with opened(urls[0]) as connection:
        assert "chunk" in told(connection, {"generate_chunk": chunk()})
        deadline = time.monotonic() + 5
        while metric(client, "tandem_websockets_open") != 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert metric(client, "tandem_websockets_open") == 1


def test_handshakes_have_a_request_id_and_are_counted_with_their_messages(urls: list[str], client: httpx.Client) -> None:
    names = [f'tandem_requests_total{{route="{CHAT}/ws",status="101"}}']
    names += [f'tandem_derender_messages_total{{status="{status}"}}' for status in (200, 400)]
    names += ['tandem_derender_tokens_total{mode="stream"}']
    before = [metric(client, name) for name in names]
    with opened(urls[0], additional_headers={"X-Request-Id": "abc-1"}) as connection:
        assert connection.response is not None
        assert connection.response.headers["x-request-id"] == "abc-1"
        told(connection, {"generate_chunk": chunk(token_ids=[1, 2])})
        told(connection, "{")
    assert [metric(client, name) - old for name, old in zip(names, before, strict=True)] == [1, 1, 1, 2]


def refused(url: str, path: str = CHAT, **options: Any) -> tuple[int, JsonObject]:
    with pytest.raises(InvalidStatus) as error:
        opened(url, path, **options)
    response = error.value.response
    assert response.headers["x-request-id"]
    return response.status_code, json.loads(response.body)["error"]


def test_a_handshake_needs_the_key_and_a_route() -> None:
    with serving(create_app(settings_for("tiny", api_key="secret"))) as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, error = refused(url, additional_headers=headers)
            assert (status, error["type"]) == (401, "AuthenticationError")
        right = {"Authorization": "Bearer secret"}
        assert refused(url, "/v1/nothing", additional_headers=right)[0] == 404
        with opened(url, additional_headers=right) as connection:
            assert "chunk" in told(connection, {"generate_chunk": chunk(token_ids=[1])})


@contextmanager
def served(app: FastAPI, own: DerenderSettings) -> Iterator[tuple[str, Server, threading.Thread]]:
    """As `tandem derender` serves: its server, whose shutdown is the one under test."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = Server(configured(app, own), app, own.drain_seconds)
        thread = threading.Thread(target=lambda: server.run(sockets=[sock]), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", server, thread
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_a_server_that_stops_sends_the_answer_in_flight_and_says_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    own = settings_for("smollm2", drain_seconds=10)
    work, begun = websocket.derender_chat_chunk, threading.Event()

    def slow(derenderer: Derenderer, request: DerenderChatStreamRequest) -> Any:
        if request.prompt_tokens == 13:
            begun.set()
            time.sleep(0.5)
        return work(derenderer, request)

    monkeypatch.setattr(websocket, "derender_chat_chunk", slow)
    with served(create_app(own), own) as (url, server, _), opened(url) as busy, opened(url) as idle:
        assert "chunk" in told(idle, {"generate_chunk": chunk()})
        busy.send(json.dumps({"generate_chunk": chunk(), "prompt_tokens": 13, "unknown": "x" * INLINE_BYTES}))
        assert begun.wait(5)
        server.should_exit = True
        with pytest.raises(ConnectionClosed) as closed:
            idle.recv(timeout=5)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        status, error = refused(url)
        assert (status, error["type"]) == (503, "ServiceUnavailableError")
        assert "chunk" in json.loads(busy.recv(timeout=5))
        with pytest.raises(ConnectionClosed) as closed:
            busy.recv(timeout=5)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_hold_a_server_that_stops() -> None:
    own = settings_for("smollm2", drain_seconds=0.5)
    opening = {"prompt_token_ids": [504] * 8000, "chat_request": {**ORIGINAL, "return_token_ids": True}, "stream_state": {}}
    body = json.dumps({"generate_chunk": chunk(), **opening}).encode()
    with served(create_app(own), own) as (url, server, thread), handshake(url) as raw:
        raw.settimeout(1)
        for _ in range(1000):
            try:
                raw.sendall(b"\x81\xfe" + len(body).to_bytes(2, "big") + UNMASKED + body)
            except TimeoutError:  # no answer is taken, so no message is: the connection is full both ways
                break
        else:
            pytest.fail("the server took every message, so it waits for nothing")
        server.should_exit = True
        thread.join(timeout=15)
        assert not thread.is_alive()


def test_the_production_server_bounds_messages_while_they_arrive() -> None:
    own = settings_for("tiny", drain_seconds=1)
    with served(create_app(own), own) as (url, _, _), opened(url) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            told(connection, " " * (LIMIT + 1))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert httpx.get(f"{url}/health").status_code == 200
        with opened(url, COMPLETION) as again:
            assert "chunk" in told(again, {"generate_chunk": chunk(token_ids=[1])})
