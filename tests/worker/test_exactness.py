"""Logits are the same bits whoever shares the batch, however a prompt is cut into chunks, and wherever a generation is resumed."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from generate_worker import pretrained
from generate_worker.engine.model_runner import ModelRunner
from tests.worker.kit import Live, body, live, stream, tiny_config, write_model

pytestmark = pytest.mark.anyio

DTYPES = ["float32", "bfloat16"]
COMPUTED = [(kernels, dtype) for kernels in ("native", "torch") for dtype in DTYPES]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough for the library to choose between kernels, with heads of 64 in groups of three."""
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    return write_model(tmp_path_factory.mktemp("wide"), tiny_config(max_position_embeddings=600, vocab_size=2000, **sizes))


@pytest.fixture(scope="module", params=COMPUTED, ids="-".join)
def wide(request: pytest.FixtureRequest, wide_folder: Path) -> Iterator[Live]:
    kernels, dtype = request.param
    flags = {"dtype": dtype, "cpu_kernels": kernels, "prefill_chunk_tokens": 150, "torch_threads": 2}
    with live(model=str(wide_folder), **flags) as running:
        yield running


def asking(length: int, seed: int, **given: Any) -> dict[str, Any]:
    ids = random.Random(seed).choices(range(3, 2000), k=length)
    return body(ids, **{"max_tokens": 20, "temperature": 1.0, "seed": seed, "logprobs": 1, "ignore_eos": True, **given})


async def test_bits_do_not_depend_on_company_chunks_or_resumption(wide: Live) -> None:
    wanted = [asking(length, seed) for seed, length in enumerate((1, 5, 17, 63, 64, 65, 130, 190, 300, 400))]
    async with wide.client() as client:
        alone = [await stream(client, request) for request in wanted]
        together = await asyncio.gather(*(stream(client, {**request, "cache_salt": "again"}) for request in wanted))
        for one, other in zip(alone, together, strict=True):
            assert one.ids() == other.ids()
            assert one.logprobs() == other.logprobs()
        resumed = [{**wanted[7], "output_token_ids": alone[7].ids()[:cut], "cache_salt": f"{cut}"} for cut in range(20)]
        for cut, told in enumerate(await asyncio.gather(*(stream(client, request) for request in resumed))):
            assert told.ids() == alone[7].ids()[cut:]
            assert told.logprobs() == alone[7].logprobs()[cut:]
    assert wide.metric("batch_invariant") == 1


def test_a_model_that_is_not_invariant_is_found_out(wide_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own linear layers, whose kernels depend on the number of rows."""
    monkeypatch.setattr("generate_worker.engine.packed_linear.pack", lambda model: None)
    model = pretrained.load(wide_folder, torch.device("cpu"), torch.float32)
    assert not ModelRunner(model, "torch").batch_invariant
