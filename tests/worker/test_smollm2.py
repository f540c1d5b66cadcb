"""The packaged model, for real: converted once, greedy ids as transformers generates them, all at once and one by one."""

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

PROMPTS = [[random.Random(seed).randrange(100, 49_000) for _ in range(3 + 9 * seed)] for seed in range(8)]
COUNT = 12


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Live]:
    with live(model="smollm2", torch_threads=0, prefill_chunk_tokens=40) as worker:
        yield worker


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    model: Any = AutoModelForCausalLM.from_pretrained(weights.weights_folder("smollm2"), dtype=torch.float32).eval()
    outputs = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=COUNT, do_sample=False)
        outputs.append(made[0, len(prompt) :].tolist())
    return outputs


async def test_greedy_ids_are_those_of_transformers_alone_and_in_company(smollm2: Live, expected: list[list[int]]) -> None:
    async with smollm2.client() as client:
        together = await asyncio.gather(*(stream(client, body(prompt, max_tokens=COUNT)) for prompt in PROMPTS))
        alone = [await stream(client, body(prompt, max_tokens=COUNT)) for prompt in PROMPTS[:3]]
    assert [told.ids() for told in together] == expected
    assert [told.ids() for told in alone] == expected[:3]


async def test_a_seed_resumes_where_it_was_cut(smollm2: Live) -> None:
    given: dict[str, Any] = {"max_tokens": 10, "temperature": 0.8, "top_p": 0.95, "seed": 11}
    async with smollm2.client() as client:
        ids = (await stream(client, body(PROMPTS[1], **given))).ids()
        for cut in (1, 5, 9):
            assert (await stream(client, body(PROMPTS[1], output_token_ids=ids[:cut], **given))).ids() == ids[cut:]
