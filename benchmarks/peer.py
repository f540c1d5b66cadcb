"""vLLM's services as peers to measure against, where there is one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peer.vllm import installed, render_server, worker_server

FLAGS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")


@contextmanager
def vllm(environment: str | None) -> Iterator[str | None]:
    """The base URL of its render and derender services; None, and a line that says so, where no virtual environment has it."""
    with tempfile.TemporaryDirectory() as scratch:
        if _missing(environment):
            yield None
            return
        flags = ("--enable-auto-tool-choice", *FLAGS)
        with render_server(Path(scratch), *flags, environment=environment) as url:
            yield url


@contextmanager
def vllm_worker(environment: str | None, model: Path, dtype: str, max_model_len: int) -> Iterator[str | None]:
    """The same of its worker, for a model folder."""
    with tempfile.TemporaryDirectory() as scratch:
        if _missing(environment):
            yield None
            return
        flags = ("--dtype", dtype, "--max-model-len", str(max_model_len))
        with worker_server(Path(scratch), model, *flags, environment=environment) as url:
            yield url


def _missing(environment: str | None) -> bool:
    if environment is not None and installed(environment) is not None:
        return False
    print("vLLM is not measured: " + (f"{environment} has none" if environment else "--peer names no virtual environment"))
    return True
