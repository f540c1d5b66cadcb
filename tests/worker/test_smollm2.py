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

LENGTHS = [
    1,
    2,
    3,
    5,
    8,
    12,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    90,
    127,
    128,
    129,
    200,
    255,
    300,
    400,
    511,
    700,
    1000,
    1250,
    1500,
]
PROMPTS = [random.Random(length).choices(range(100, 49_000), k=length) for length in LENGTHS]
COUNT = 8


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Live]:
    with live(model="smollm2", torch_threads=0, max_num_seqs=16) as worker:
        yield worker


async def test_greedy_ids_are_those_of_transformers_alone_and_in_company(smollm2: Live) -> None:
    async with smollm2.client() as client:
        wanted = [body(ids, max_tokens=COUNT, ignore_eos=True) for ids in PROMPTS]
        together = [one.ids() for one in await asyncio.gather(*(stream(client, request) for request in wanted))]
        alone = [(await stream(client, {**request, "cache_salt": "alone"})).ids() for request in wanted]
    assert alone == together
    model: Any = AutoModelForCausalLM.from_pretrained(weights.weights_folder("smollm2"), dtype=torch.float32).eval()
    for prompt, ids in zip(PROMPTS, together, strict=True):
        given = torch.tensor([prompt])
        with torch.inference_mode():
            made = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=COUNT,
                min_new_tokens=COUNT,
                do_sample=False,
                eos_token_id=None,
            )
        assert ids == made[0, len(prompt) :].tolist(), f"a prompt of {len(prompt)} tokens"


async def test_a_seed_resumes_where_it_was_cut(smollm2: Live) -> None:
    given: dict[str, Any] = {"max_tokens": 8, "temperature": 0.8, "top_p": 0.95, "seed": 11}
    async with smollm2.client() as client:
        ids = (await stream(client, body(PROMPTS[9], **given))).ids()
        for cut in (1, 4, 7):
            assert (await stream(client, body(PROMPTS[9], output_token_ids=ids[:cut], **given))).ids() == ids[cut:]
