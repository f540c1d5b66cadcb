from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.worker.kit import Live, live, tiny_config, write_model


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"), tiny_config())


@pytest.fixture(scope="session")
def reference(tiny_folder: Path) -> Any:
    """The tiny model as transformers runs it."""
    return AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def worker(tiny_folder: Path) -> Iterator[Live]:
    """One live worker for all tests that leave it as they found it. Its small chunks make every longer prompt a chunked one."""
    with live(model=str(tiny_folder), prefill_chunk_tokens=16, max_queue=64, max_num_seqs=8) as running:
        yield running
