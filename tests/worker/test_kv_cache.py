"""Blocks in a live worker: whatever is reused, taken away or computed anew, the output is that of a run with room for all."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worker.kit import MAX_LEN, Live, live, stream
from tests.worker.kit import body as asking

pytestmark = pytest.mark.anyio

BLOCK = 16
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4
"""The tiny model's: layers, key and value, heads, dimensions of a head, bytes of a float."""


@pytest.fixture(scope="module")
def plain(tiny_folder: Path) -> Iterator[Live]:
    """Room for everything, and nothing is reused."""
    with live(model=str(tiny_folder), enable_prefix_caching=False) as running:
        yield running


def requests(count: int, seed: int = 0, **given: Any) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    shared = [rng.randrange(3, 500) for _ in range(150)]
    return [
        asking(
            shared[: rng.choice((0, 40, 90, 150))] + [rng.randrange(3, 500) for _ in range(rng.randrange(1, 30))],
            max_tokens=rng.randrange(1, 60),
            temperature=rng.choice((0, 1.0)),
            seed=rng.randrange(100),
            logprobs=2,
            ignore_eos=True,
            **given,
        )
        for _ in range(count)
    ]


async def answers(worker: Live, wanted: list[dict[str, Any]]) -> list[Any]:
    async with worker.client() as client:
        told = await asyncio.gather(*(stream(client, request) for request in wanted))
    return [[(one.ids(choice), one.logprobs(choice)) for choice in sorted(one.dones)] for one in told]


async def test_a_tiny_budget_changes_no_bit_of_any_output(tiny_folder: Path, plain: Live) -> None:
    wanted = requests(24) + requests(4, seed=1, n=3)
    expected = await answers(plain, wanted)
    with live(model=str(tiny_folder), kv_cache_memory=17 * BLOCK * TOKEN_BYTES, prefill_chunk_tokens=40) as small:
        assert await answers(small, wanted) == expected
        assert small.metric("preemptions") > 0
        await small.becomes("kv_tokens_used", 0)
        assert small.metric("kv_tokens_total") == 17 * BLOCK


async def test_reuse_changes_no_bit_and_is_told(worker: Live, plain: Live) -> None:
    wanted = requests(12, seed=2)
    expected = await answers(plain, wanted)
    assert await answers(worker, wanted) == expected
    assert await answers(worker, wanted) == expected
    prompt = list(range(3, 3 + 100))
    request = asking(prompt, max_tokens=3)
    async with worker.client() as client:
        cached = [(await stream(client, request)).last.usage for _ in range(2)]
        other = (await stream(client, {**request, "cache_salt": "mine"})).last.usage
    told = [usage.prompt_tokens_details.cached_tokens for usage in (*cached, other) if usage and usage.prompt_tokens_details]
    assert told == [0, 96, 0]


async def test_what_was_generated_is_reused_in_the_next_turn(worker: Live) -> None:
    prompt = [7] * 40
    async with worker.client() as client:
        first = await stream(client, asking(prompt, max_tokens=40, ignore_eos=True))
        second = await stream(client, asking([*prompt, *first.ids(), 9, 9, 9], max_tokens=2))
    usage = second.last.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    # The last sampled token was never computed, and the block that it ends is not whole.
    assert usage.prompt_tokens_details.cached_tokens == (40 + 40 - 1) // BLOCK * BLOCK


async def test_nobody_finds_anything_where_prefix_caching_is_off(plain: Live) -> None:
    async with plain.client() as client:
        for _ in range(2):
            usage = (await stream(client, asking([5] * 100, max_tokens=1))).last.usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            assert usage.prompt_tokens_details.cached_tokens == 0


async def test_a_prompt_that_can_never_fit_is_a_400_and_the_context_is_what_fits(tiny_folder: Path) -> None:
    blocks = 5
    with live(model=str(tiny_folder), kv_cache_memory=blocks * BLOCK * TOKEN_BYTES) as small:
        async with small.client() as client:
            refused = await client.post("/inference/v1/generate", json=asking([5] * (blocks * BLOCK)))
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "token_ids"
            assert (await client.get("/v1/models")).json()["data"][0]["max_model_len"] == blocks * BLOCK
            told = await stream(client, asking([5] * (blocks * BLOCK - 4), ignore_eos=True))
            assert told.last.choices[0].finish_reason == "length"
            assert len(told.ids()) == 4


async def test_random_requests_and_aborts_leave_nothing_behind(tiny_folder: Path) -> None:
    rng = random.Random(5)
    with live(model=str(tiny_folder), kv_cache_memory=30 * BLOCK * TOKEN_BYTES, max_queue=300, prefill_chunk_tokens=30) as small:
        async with small.client() as client:

            async def one(request: dict[str, Any]) -> str:
                """Read to its end, left, aborted by name, or in a hurry."""
                way = rng.choice(("read", "read", "leave", "abort", "whole"))
                if way == "read":
                    return (await stream(client, request)).last.choices[0].finish_reason
                if way == "whole":
                    answer = await client.post("/inference/v1/generate", json={**request, "stream": False})
                    return str(answer.json()["choices"][0]["finish_reason"])
                name = f"r{rng.random()}"
                try:
                    async with asyncio.timeout(rng.random() if way == "leave" else None):
                        if way == "abort":
                            told, _ = await asyncio.gather(
                                stream(client, {**request, "request_id": name}), _abort(client, name, rng.random())
                            )
                            return told.last.choices[0].finish_reason
                        return (await stream(client, request)).last.choices[0].finish_reason
                except TimeoutError:
                    return "left"

            wanted = requests(180, seed=6) + requests(20, seed=7, n=2)
            ends = await asyncio.gather(*map(one, wanted))
            assert set(ends) <= {"stop", "length", "abort", "left"}
            assert len(set(ends)) >= 3
        for gauge in ("requests_running", "requests_waiting", "slots_used", "kv_tokens_used"):
            await small.becomes(gauge, 0)


async def _abort(client: httpx.AsyncClient, name: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await client.post("/inference/v1/abort_requests", json={"request_ids": [name]})


async def test_scores_of_a_prompt_are_the_same_computed_whole_in_chunks_or_again(worker: Live, plain: Live) -> None:
    prompt = [3 + (i * 11) % 500 for i in range(120)]
    request = asking(prompt, stream=False, max_tokens=4, prompt_logprobs=2)
    found = []
    for where in (plain, worker, worker):
        async with where.client() as client:
            found.append((await client.post("/inference/v1/generate", json=request)).json()["prompt_logprobs"])
        async with where.client() as client:
            refused = await client.post("/inference/v1/generate", json={**request, "stream": True})
        assert refused.json()["error"]["param"] == "sampling_params.prompt_logprobs"
    assert found[0] == found[1] == found[2]
    assert found[0][0] is None
    assert all(str(token_id) in entry for token_id, entry in zip(prompt[1:], found[0][1:], strict=True))
    assert len(found[0]) == len(prompt) < MAX_LEN
