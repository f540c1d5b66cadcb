"""vLLM's render and derender services as a peer to measure against, where there is one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peer.vllm import installed, render_server

FLAGS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")


@contextmanager
def vllm(environment: str | None) -> Iterator[str | None]:
    """Its base URL; None, and a line that says so, without a virtual environment that has it."""
    if environment is None or installed(environment) is None:
        print("vLLM is not measured: " + (f"{environment} has none" if environment else "--peer names no virtual environment"))
        yield None
        return
    with (
        tempfile.TemporaryDirectory() as scratch,
        render_server(Path(scratch), "--enable-auto-tool-choice", *FLAGS, environment=environment) as url,
    ):
        yield url
