"""What the gateway adds, as seen by a client: `python -m benchmarks.gateway`.

The worker replays ids, so that its own time is small and steady; both are asked by turns, in one run.
- time to the first token, for a streamed chat against the same prompt's generate stream at the worker
- time per token of a stream that comes as fast as it can, and of one at a model's pace
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.processes import server

WARM_UP = 2
ROUNDS = 30
PACED_ROUNDS = 6
TOKENS = 200
PACE = 100.0
"""Tokens a second of the paced worker."""


def arrivals(client: httpx.Client, url: str, body: dict[str, Any]) -> list[float]:
    """Seconds from the request to each event that has tokens or text."""
    started = time.perf_counter()
    times = []
    with client.stream("POST", url, json=body) as answer:
        if answer.is_error:
            raise SystemExit(f"{url}: {answer.read().decode()}")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                times.append(time.perf_counter() - started)
    return times


def requests(gateway: str, render: str, worker: str, client: httpx.Client) -> tuple[tuple[str, Any], tuple[str, Any]]:
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS, "seed": 1, "stream": True}
    rendered = client.post(f"{render}/v1/chat/completions/render", json=chat).json()
    return (f"{gateway}/v1/chat/completions", chat), (f"{worker}/inference/v1/generate", rendered)


def measured(rate: float, client: httpx.Client) -> Iterator[tuple[str, float, float]]:
    """Medians in milliseconds: (what, through the gateway, at the worker)."""
    with ExitStack() as stack:
        start = lambda *command: stack.enter_context(server("tandem", *command, "--log-level", "warning"))  # noqa: E731
        render, derender = start("render"), start("derender")
        worker = start("generate", "--engine", "replay", "--replay-tokens-per-second", str(rate))
        gateway = start("gateway", "--render-url", render, "--derender-url", derender, "--worker-url", worker)
        both = requests(gateway, render, worker, client)
        first: tuple[list[float], list[float]] = ([], [])
        last: tuple[list[float], list[float]] = ([], [])
        for attempt in range(WARM_UP + (ROUNDS if rate == 0 else PACED_ROUNDS)):
            for side, (url, body) in enumerate(both):
                times = arrivals(client, url, body)
                if attempt < WARM_UP:
                    continue
                first[side].append(times[0] * 1000)
                last[side].append((times[-1] - times[0]) * 1000 / (TOKENS - 1))
        yield "first token", statistics.median(first[0]), statistics.median(first[1])
        yield "each further token", statistics.median(last[0]), statistics.median(last[1])


def main() -> None:
    table = Table("", "gateway ms", "worker ms", "added ms", "ratio", title="one stream (medians)")
    with httpx.Client(timeout=60) as client:
        for rate, name in ((0.0, "as fast as it can"), (PACE, f"paced, {PACE:.0f} tokens/s")):
            for what, gateway, worker in measured(rate, client):
                cells = (f"{gateway:.2f}", f"{worker:.2f}", f"{gateway - worker:.2f}", f"{gateway / worker:.2f}")
                table.add_row(f"{what}, {name}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
