"""NVIDIA's AIPerf as a foreign client of the gateway: what it counts, the servers count, and the bench for the same requests.

`TANDEM_TEST_AIPERF` names a virtual environment that has it (`pip install aiperf`); without one this says so and is skipped.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import GatewaySettings
from gateway.app import create_app as gateway_app
from generate_worker.app import WorkerSettings
from generate_worker.app import create_app as worker_app
from tests.bench.kit import ran
from tests.gateway.kit import standing
from tests.live import serving
from tests.tokenizers import folder

VARIABLE = "TANDEM_TEST_AIPERF"
REQUESTS, OUTPUT = 12, 20


def installed() -> str | None:
    given = os.environ.get(VARIABLE)
    command = Path(given) / "bin" / "aiperf" if given else None
    return str(command) if command is not None and command.exists() else None


pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(installed() is None, reason=f"no AIPerf: {VARIABLE} names no virtual environment with it"),
]


def counted(worker: str) -> tuple[float, float]:
    """(prompt tokens, output tokens), as the worker's metrics have them."""
    lines = httpx.get(f"{worker}/metrics").text.splitlines()

    def total(name: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == f"tandem_{name}")

    return total("prompt_tokens_total"), total("generated_tokens_total")


def aiperf(url: str, results: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What it measured, and the bodies that it sent."""
    program = installed()
    assert program is not None
    load = ["--request-count", str(REQUESTS), "--concurrency", "3", "--random-seed", "1"]
    lengths = ["--synthetic-input-tokens-mean", "40", "--output-tokens-mean", str(OUTPUT)]
    sampling = ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
    counts = ["--tokenizer", str(folder("qwen3")), "--use-server-token-count"]
    where = ["--model", "smollm2", "--url", url, "--endpoint-type", "chat", "--streaming"]
    out = ["--ui", "none", "--output-artifact-dir", str(results)]
    command = [program, "profile", *where, *load, *lengths, *sampling, *counts, *out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sessions = json.loads((results / "inputs.json").read_text())["data"]
    bodies = [body for session in sessions for body in session["payloads"]]
    return json.loads((results / "profile_export_aiperf.json").read_text()), bodies


def test_a_foreign_client_the_servers_and_the_bench_count_alike(tmp_path: Path) -> None:
    replay = WorkerSettings(model="smollm2", engine="replay", enable_prefix_caching=False, replay_tokens_per_second=200)
    render, (derender, *_) = standing()
    with serving(worker_app(replay)) as worker:
        gateway = gateway_app(GatewaySettings(render_url=render, derender_url=derender, worker_url=worker))
        with serving(gateway) as url:
            theirs, bodies = aiperf(url, tmp_path / "theirs")
            after_theirs = counted(worker)
            lines = tmp_path / "mine.jsonl"
            lines.write_text("".join(json.dumps(body) + "\n" for body in bodies))
            ours = ran(tmp_path / "ours", url=url, requests_file=lines, concurrency=[3], warm_up=0)
            after_ours = counted(worker)
    assert theirs["request_count"]["avg"] == ours.point.requests.completed == len(bodies) == REQUESTS
    assert theirs["total_usage_completion_tokens"]["avg"] == ours.point.tokens.output == REQUESTS * OUTPUT
    assert theirs["total_usage_prompt_tokens"]["avg"] == ours.point.tokens.prompt
    prompt, output = after_theirs
    assert (prompt, output) == (ours.point.tokens.prompt, ours.point.tokens.output)
    assert after_ours == (2 * prompt, 2 * output)
