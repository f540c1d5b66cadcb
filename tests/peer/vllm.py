"""vLLM as a foreign twin: its render and derender server, for a tokenizer of ours, and its worker. It is a peer to compare with,
never a dependency.

`TANDEM_TEST_PEER` names a virtual environment that vLLM is installed in; without it the tests of this folder say so and are
skipped.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.tokenizers import folder

VARIABLE = "TANDEM_TEST_PEER"
START_SECONDS = 240

# A connection is kept open as long as ours are: vLLM's own five seconds are less than a benchmark's turn may take.
_VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75", "VLLM_CPU_KVCACHE_SPACE": "1"}

# The least of a config that lets vLLM find out which tokenizer and which lengths a model has; no weights are loaded.
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
}


def installed(environment: str | None = None) -> str | None:
    """The vLLM command of a virtual environment, by default of the one that the variable names; None where there is none."""
    given = environment or os.environ.get(VARIABLE)
    command = Path(given) / "bin" / "vllm" if given else None
    return str(command) if command is not None and command.exists() else None


@contextmanager
def render_server(scratch: Path, *flags: str, environment: str | None = None) -> Iterator[str]:
    """The base URL of `vllm launch render` for Qwen3's tokenizer."""
    model = scratch / "qwen3"
    shutil.copytree(folder("qwen3"), model)
    (model / "config.json").write_text(json.dumps(_CONFIG))
    with _running(scratch, "launch", "render", str(model), *flags, environment=environment) as url:
        yield url


@contextmanager
def worker_server(scratch: Path, model: Path, *flags: str, environment: str | None = None) -> Iterator[str]:
    """The base URL of `vllm serve --tokens-only` for a model folder: a worker without a tokenizer."""
    with _running(scratch, "serve", str(model), "--tokens-only", "--enforce-eager", *flags, environment=environment) as url:
        yield url


@contextmanager
def _running(scratch: Path, *command: str, environment: str | None) -> Iterator[str]:
    program = installed(environment)
    assert program is not None, f"no vLLM in {environment or os.environ.get(VARIABLE)}"
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    name = () if "--served-model-name" in command else ("--served-model-name", "m")
    arguments = [program, *command, *name, "--port", str(port)]
    with (scratch / "vllm.log").open("w") as log:
        process = subprocess.Popen(arguments, env={**os.environ, **_VARIABLES}, stdout=log, stderr=log, start_new_session=True)
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(url):
                assert process.poll() is None, (scratch / "vllm.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "vLLM did not start in time"
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.TransportError:
        return False
