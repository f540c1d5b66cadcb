"""Work ends when nobody wants it any more: aborts, clients that leave, shutdown. Slots and queue places come free at once."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Overloaded
from protocol.events import DoneEvent
from tests.worker.kit import Live, body, live, opened, stream, tiny_config, write_model

pytestmark = pytest.mark.anyio

ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 100_000}
LONG = 4096


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("long"), tiny_config(max_position_embeddings=LONG))


@pytest.fixture(scope="module", params=["torch", "replay"])
def slow(request: pytest.FixtureRequest, long_folder: Path) -> Iterator[Live]:
    """Two slots, a queue of two, and streams that take long enough to be ended in their midst; prefill goes in small bites."""
    own: dict[str, Any] = (
        {"model": str(long_folder), "prefill_chunk_tokens": 2}
        if request.param == "torch"
        else {"engine": "replay", "replay_tokens_per_second": 200, "replay_vocab_size": 512, "max_model_len": LONG}
    )
    with live(max_num_seqs=2, max_queue=2, **own) as running:
        yield running


async def idle(worker: Live) -> None:
    for gauge in ("requests_running", "requests_waiting", "slots_used", "kv_tokens_used"):
        await worker.becomes(gauge, 0)


async def test_abort_ends_all_requests_of_an_id_running_or_waiting(slow: Live) -> None:
    async with slow.client() as client:
        tasks = [asyncio.create_task(stream(client, body([5, 6], request_id="one", **ENDLESS))) for _ in range(3)]
        tasks.append(asyncio.create_task(stream(client, body([5, 6], request_id="two", **ENDLESS))))
        await slow.becomes("requests_running", 2)
        await slow.becomes("requests_waiting", 2)
        answer = await client.post("/inference/v1/abort_requests", json={"request_ids": ["one", "one", "unknown"]})
        assert answer.json() == {"aborted": 3}
        for task in tasks[:3]:
            assert (await task).last.choices[0].finish_reason == "abort"
        await slow.becomes("requests_running", 1)
        assert (await client.post("/inference/v1/abort_requests", json={"request_ids": ["two"]})).json() == {"aborted": 1}
        assert (await tasks[3]).last.choices[0].finish_reason == "abort"
        assert (await client.post("/inference/v1/abort_requests", json={"request_ids": ["two"]})).json() == {"aborted": 0}
    await idle(slow)


async def test_an_aborted_whole_answer_brings_what_there_is(slow: Live) -> None:
    async with slow.client() as client:
        asked = body([5, 6], stream=False, request_id="whole", n=2, temperature=1, **ENDLESS)
        task = asyncio.create_task(client.post("/inference/v1/generate", json=asked))
        await slow.becomes("slots_used", 2)
        await asyncio.sleep(0.2)
        await client.post("/inference/v1/abort_requests", json={"request_ids": ["whole"]})
        answer = (await task).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["abort", "abort"]
    assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in answer["choices"]) > 0
    await idle(slow)


async def test_a_client_that_leaves_a_stream_frees_its_slot(slow: Live) -> None:
    before = slow.metric("choices_aborted_total")
    async with slow.client() as client:
        async with opened(client, body([5, 6], n=2, temperature=1, **ENDLESS)) as events:
            async for _ in events:
                break
        await idle(slow)
    assert slow.metric("choices_aborted_total") == before + 2


async def leave(worker: Live, request: bytes, gauge: str, value: float) -> None:
    """Sends a request, and hangs up once the gauge shows that it has arrived."""
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /inference/v1/generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(request)}\r\n\r\n"
        connection.sendall(head.encode() + request)
        await worker.becomes(gauge, value)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_the_queue_leaves_it(slow: Live, streaming: bool) -> None:
    async with slow.client() as client, opened(client, body([5], n=2, temperature=1, **ENDLESS)) as events:
        await anext(events)
        await leave(slow, json.dumps(body([5, 6], stream=streaming, **ENDLESS)).encode(), "requests_waiting", 1)
        await slow.becomes("requests_waiting", 0)
        assert slow.metric("requests_running") == 1
    await idle(slow)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_during_prefill_frees_its_slot(slow: Live, streaming: bool) -> None:
    asked = body([5 + i % 400 for i in range(LONG - 1000)], stream=streaming, **ENDLESS)
    await leave(slow, json.dumps(asked).encode(), "requests_running", 1)
    await idle(slow)


async def test_past_the_queue_bound_the_answer_is_503_with_retry_after(slow: Live) -> None:
    async with slow.client() as client:
        tasks = [asyncio.create_task(stream(client, body([5], request_id="fill", **ENDLESS))) for _ in range(4)]
        await slow.becomes("requests_running", 2)
        await slow.becomes("requests_waiting", 2)
        for streaming in (True, False):
            refused = await client.post("/inference/v1/generate", json=body([5], stream=streaming, **ENDLESS))
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "ServiceUnavailableError"
        await client.post("/inference/v1/abort_requests", json={"request_ids": ["fill"]})
        await asyncio.gather(*tasks)
        assert len((await stream(client, body([5], max_tokens=3, ignore_eos=True))).ids()) == 3
    await idle(slow)


async def test_past_the_drain_limit_streams_end_in_an_error(slow: Live) -> None:
    async with slow.client() as client:
        running = [asyncio.create_task(stream(client, body([5], **ENDLESS))) for _ in range(3)]
        await slow.becomes("requests_waiting", 1)
        await client.get("/expire")
        for told in await asyncio.gather(*running):
            assert told.error is not None
            assert told.error.error.code == Overloaded.status
            assert not any(isinstance(event, DoneEvent) for event in told.events)
    await idle(slow)
