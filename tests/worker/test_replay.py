"""The replay engine: given ids at a given rate, under the same rules as any engine, and without torch."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from generate_worker.app import create_app
from model_profile.errors import ProfileError
from protocol.events import ErrorEvent, GenerateEvent, TokenEvent, parse_event
from protocol.sse import DONE, KEEP_ALIVE, SSEDecoder
from tests.worker.kit import Live, body, live, settings, stream

pytestmark = pytest.mark.anyio

LINES: list[dict[str, Any]] = [
    {"token_ids": [10, 11, 12, 13, 2], "finish_reason": "stop"},
    {"token_ids": [20, 21, 22], "finish_reason": "length"},
    {"token_ids": [30, 31, 77], "finish_reason": "stop"},
    {"token_ids": [], "finish_reason": "abort"},
    {"token_ids": [40, 2, 41]},
]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Live]:
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    with live(engine="replay", script=path, replay_vocab_size=100) as worker:
        yield worker


async def test_lines_are_played_in_turn(scripted: Live) -> None:
    async with scripted.client() as client:
        told = [await stream(client, body([5])) for _ in range(6)]
    ends = [(one.ids(), one.last.choices[0].finish_reason, one.last.choices[0].stop_reason) for one in told]
    assert ends == [
        ([10, 11, 12, 13, 2], "stop", None),
        ([20, 21, 22], "length", None),
        ([30, 31, 77], "stop", 77),
        ([], "abort", None),
        ([40, 2], "stop", None),
        ([10, 11, 12, 13, 2], "stop", None),
    ]


async def test_the_requests_own_rules_hold(scripted: Live) -> None:
    async with scripted.client() as client:
        short = await stream(client, body([5], max_tokens=2))
        both = await stream(client, body([5], n=2, ignore_eos=True, stop_token_ids=[31], logprobs=1))
        resumed = await stream(client, body([5], output_token_ids=[40, 2], ignore_eos=True))
        complete = await stream(client, body([5], output_token_ids=[10, 11], max_tokens=2))
    assert (short.ids(), short.last.choices[0].finish_reason) == ([10, 11], "length")
    assert [both.ids(0), both.ids(1)] == [[20, 21, 22], [30, 31]]
    assert [entry.token_id for entry in both.logprobs(1)] == [30, 31]
    assert resumed.ids() == [41]
    assert (complete.ids(), complete.last.choices[0].output_tokens, complete.last.choices[0].finish_reason) == ([], 2, "length")


async def test_made_up_ids_resume_anywhere_on_any_replica() -> None:
    with (
        live(engine="replay", replay_vocab_size=50) as one,
        live(engine="replay", replay_vocab_size=50, replay_chunk_size=4) as other,
    ):
        async with one.client() as client, other.client() as second:
            ids = (await stream(client, body([5], max_tokens=20, seed=3))).ids()
            assert len(ids) == 20
            assert 2 not in ids
            for cut in range(21):
                again = await stream(second, body([5], max_tokens=20, seed=3, output_token_ids=ids[:cut]))
                assert again.ids() == ids[cut:]


async def test_rate_and_chunks() -> None:
    with live(engine="replay", replay_tokens_per_second=100, replay_chunk_size=5) as worker:
        async with worker.client() as client:
            begun = time.monotonic()
            told = await asyncio.gather(*(stream(client, body([5], max_tokens=32)) for _ in range(8)))
            seconds = time.monotonic() - begun
    assert 0.3 < seconds < 1.5
    for one in told:
        assert [len(event.choices[0].token_ids) for event in one.events] == [5] * 6 + [2, 0]  # type: ignore[union-attr]


async def test_a_silent_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("generate_worker.event_stream.KEEP_ALIVE_SECONDS", 0.05)
    with live(engine="replay", replay_tokens_per_second=4) as worker:
        async with worker.client() as client:
            text = (await client.post("/inference/v1/generate", json=body([5], max_tokens=1))).content
    assert text.count(KEEP_ALIVE) >= 3
    assert text.startswith(KEEP_ALIVE)
    assert text.endswith(b"data: [DONE]\n\n")


def scripted_worker(tmp_path: Path, *lines: dict[str, Any], **given: Any) -> Any:
    path = tmp_path / "failures.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return live(engine="replay", script=path, replay_vocab_size=100, **given)


async def told_so_far(client: httpx.AsyncClient, request: dict[str, Any]) -> tuple[list[GenerateEvent], bool]:
    """The events that came, and whether the stream was ended as it should be."""
    decoder, events, finished = SSEDecoder(), [], False
    try:
        async with client.stream("POST", "/inference/v1/generate", json=request) as response:
            async for chunk in response.aiter_bytes():
                for event in decoder.feed(chunk):
                    if event.data == DONE:
                        finished = True
                    else:
                        events.append(parse_event(event.data))
    except httpx.RemoteProtocolError:
        return events, False
    return events, finished


def places(events: list[GenerateEvent]) -> list[int]:
    return [event.choices[0].token_index for event in events if isinstance(event, TokenEvent)]


IDS = [10, 11, 12, 13, 14, 15]


async def test_a_failure_comes_after_its_tokens_and_not_again_where_the_stream_is_resumed(tmp_path: Path) -> None:
    for kind in ("drop", "error"):
        line = {"token_ids": IDS, "fail": {"kind": kind, "after": 3, "message": "as planned"}}
        with scripted_worker(tmp_path, line, replay_chunk_size=2) as worker:
            async with worker.client() as client:
                events, finished = await told_so_far(client, body([5]))
                assert not finished
                assert [one for event in events if isinstance(event, TokenEvent) for one in event.choices[0].token_ids] == IDS[:3]
                assert isinstance(events[-1], ErrorEvent) == (kind == "error")
                resumed = await stream(client, body([5], output_token_ids=IDS[:3]))
                assert resumed.ids() == IDS[3:]
                with pytest.raises(httpx.RemoteProtocolError) if kind == "drop" else nullcontext():
                    answer = await client.post("/inference/v1/generate", json=body([5], stream=False))
                    assert answer.status_code == 500
                    assert answer.json()["error"]["message"] == "as planned"
            await worker.becomes("slots_used", 0)


async def test_a_stall_lasts_as_long_as_it_says_or_until_the_client_leaves(tmp_path: Path) -> None:
    for_a_while = {"tokens": 12, "tokens_per_second": 40, "fail": {"kind": "stall", "after": 2, "seconds": 0.4}}
    for_ever = {"tokens": 6, "fail": {"kind": "stall", "after": 2}}
    with scripted_worker(tmp_path, for_a_while, for_ever) as worker:
        async with worker.client() as client:
            begun = time.monotonic()
            assert len((await stream(client, body([5]))).ids()) == 12
            # What was missed is not made up for.
            assert time.monotonic() - begun > 0.4 + 12 / 40 - 0.02
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await stream(client, body([5]))
        await worker.becomes("slots_used", 0)


@pytest.mark.parametrize(
    ("kind", "expected"), [("missing", [0, 1, 3, 4, 5]), ("duplicate", [0, 1, 2, 2, 3, 4, 5]), ("late", [0, 1, 2, 2])]
)
async def test_streams_that_break_the_protocol(tmp_path: Path, kind: str, expected: list[int]) -> None:
    with scripted_worker(tmp_path, {"token_ids": IDS, "fail": {"kind": kind, "after": 2}}) as worker:
        async with worker.client() as client:
            events, finished = await told_so_far(client, body([5]))
    assert finished
    assert places(events) == expected
    assert isinstance(events[-1], TokenEvent) == (kind == "late")


async def test_a_line_has_its_own_pace(tmp_path: Path) -> None:
    with scripted_worker(tmp_path, {"tokens": 12, "tokens_per_second": 40, "chunk_size": 4}) as worker:
        async with worker.client() as client:
            begun = time.monotonic()
            told = await stream(client, body([5], seed=1))
            assert 0.25 < time.monotonic() - begun < 2
            assert [len(event.choices[0].token_ids) for event in told.events] == [4, 4, 4, 0]  # type: ignore[union-attr]
            again = await stream(client, body([5], seed=1, output_token_ids=told.ids()[:5]))
    assert again.ids() == told.ids()[5:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "5\n",
        '{"token_ids": "x"}',
        '{"token_ids": [1], "other": 2}',
        '{"token_ids": [-1]}',
        '{"token_ids": [1], "fail": {"kind": "odd"}}',
        '{"tokens": 1, "token_ids": [1]}',
    ],
)
def test_a_broken_script_is_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"script\.jsonl") as raised:
        create_app(settings(engine="replay", script=path))
    assert "\n" not in str(raised.value)


def test_it_runs_where_torch_is_not_installed() -> None:
    program = """
import sys
for name in ("torch", "transformers", "safetensors", "accelerate"):
    sys.modules[name] = None
from generate_worker.app import WorkerSettings, create_app
create_app(WorkerSettings(engine="replay"))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
