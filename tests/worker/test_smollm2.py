"""The packaged model, for real: converted once, its greedy ids are transformers' own, all at once and one by one."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from generate_worker import weights
from tests.worker.kit import Live, body, live, stream

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PROMPTS = [random.Random(seed).sample(range(100, 49_000), 3 + 9 * seed) for seed in range(8)]
COUNT = 8


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Live]:
    with live(model="smollm2", prefill_chunk_tokens=40) as worker:
        yield worker


async def test_greedy_ids_are_those_of_transformers_alone_and_in_company(smollm2: Live) -> None:
    async with smollm2.client() as client:
        together = [one.ids() for one in await asyncio.gather(*(stream(client, body(ids, max_tokens=COUNT)) for ids in PROMPTS))]
        alone = [(await stream(client, body(ids, max_tokens=COUNT))).ids() for ids in PROMPTS[:3]]
    assert alone == together[:3]
    model: Any = AutoModelForCausalLM.from_pretrained(weights.weights_folder("smollm2"), dtype=torch.float32).eval()
    for prompt, ids in zip(PROMPTS, together, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + ids]), logits_to_keep=len(ids) + 1).logits[0]
        assert logits.argmax(-1).tolist()[: len(ids)] == ids


async def test_a_seed_resumes_where_it_was_cut(smollm2: Live) -> None:
    given: dict[str, Any] = {"max_tokens": 8, "temperature": 0.8, "top_p": 0.95, "seed": 11}
    async with smollm2.client() as client:
        ids = (await stream(client, body(PROMPTS[1], **given))).ids()
        for cut in (1, 4, 7):
            assert (await stream(client, body(PROMPTS[1], output_token_ids=ids[:cut], **given))).ids() == ids[cut:]
