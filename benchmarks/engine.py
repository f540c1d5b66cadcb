"""Tokens per second of the worker, against vLLM, transformers' continuous batching, and `generate` with a batch.

    python -m benchmarks.engine [--model smollm2] [--dtype bfloat16] [--peer <virtual environment with vLLM>]

- streams of 128 + 64 tokens at once, greedy: ours and vLLM's over HTTP, as processes of their own, transformers in process
- the time between two tokens of running streams, alone and while prompts of 2,000 tokens arrive
- the time to the first token behind a prefix of 1,500 tokens: new, and known
- what a step of our engine spends where, and what the machine could do at best

All take turns, so that a busy machine slows all; the table shows medians over rounds. One dtype for all sides of a run.
"""

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the worker sets it, before torch is imported; it serves all sides

import httpx
import torch
from rich.console import Console
from rich.table import Table
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from benchmarks.peer import vllm_worker
from benchmarks.processes import server
from benchmarks.step import Decoding, Machine
from generate_worker import pretrained, weights
from protocol.normalise import StreamNormaliser
from protocol.sse import DONE, SSEDecoder

STREAMS = (1, 4, 8, 16)
PROMPT, OUTPUT = 128, 64
LONG, PREFIX = 2000, 1500
CONTEXT = 4096

Side = Callable[[list[list[int]]], Awaitable[list[list[int]]]]


class Worker:
    """A worker behind HTTP, ours or vLLM's."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=600)

    async def tokens(self, prompt: list[int], output: int) -> AsyncIterator[list[int]]:
        """Ids as they come."""
        params = {"temperature": 0, "max_tokens": output, "ignore_eos": True}
        body = {"token_ids": prompt, "stream": True, "sampling_params": params}
        decoder, normaliser = SSEDecoder(), StreamNormaliser("b", 0, n=1)
        async with self._client.stream("POST", "/inference/v1/generate", json=body) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                for event in decoder.feed(chunk):
                    if event.data != DONE:
                        for one in normaliser.feed(json.loads(event.data)):
                            if one.type != "error" and one.choices[0].token_ids:
                                yield one.choices[0].token_ids

    async def ids(self, prompt: list[int], output: int) -> list[int]:
        return [token_id async for ids in self.tokens(prompt, output) for token_id in ids]

    async def run(self, prompts: list[list[int]]) -> list[list[int]]:
        return list(await asyncio.gather(*(self.ids(prompt, OUTPUT) for prompt in prompts)))

    async def first(self, prompt: list[int]) -> float:
        """Seconds to the first token."""
        begun = time.perf_counter()
        async for _ in self.tokens(prompt, 1):
            return time.perf_counter() - begun
        raise RuntimeError("no token came")

    async def gaps(self, prompt: list[int], output: int) -> list[float]:
        """Seconds between tokens."""
        times = [time.perf_counter() async for _ in self.tokens(prompt, output)]
        return [after - before for before, after in pairwise(times)]


class Transformers:
    """The model as transformers runs it."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.model: Any = pretrained.load(folder, torch.device("cpu"), dtype)

    async def generate(self, prompts: list[list[int]]) -> list[list[int]]:
        return await asyncio.to_thread(self._generate, prompts)

    async def continuous(self, prompts: list[list[int]]) -> list[list[int]]:
        return await asyncio.to_thread(self._continuous, prompts)

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            made = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=OUTPUT,
                min_new_tokens=OUTPUT,
                do_sample=False,
                eos_token_id=None,
            )
        found: list[list[int]] = made[:, ids.shape[1] :].tolist()
        return found

    def _continuous(self, prompts: list[list[int]]) -> list[list[int]]:
        config = self.model.generation_config.__class__(
            max_new_tokens=OUTPUT, do_sample=False, eos_token_id=-1, pad_token_id=0, use_cache=True
        )
        # Room for these prompts and no more: it would else fill the machine's memory, which takes longer than the tokens.
        room = ContinuousBatchingConfig(num_blocks=2 * max(STREAMS), max_batch_tokens=512, use_cuda_graph=False)
        made = self.model.generate_batch(prompts, generation_config=config, continuous_batching_config=room, warmup=False)
        return [list(one.generated_tokens) for one in made.values()]


def prompts(count: int, length: int, vocabulary: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    made: list[list[int]] = torch.randint(100, vocabulary, (count, length), generator=generator).tolist()
    return made


async def throughput(sides: dict[str, Side], vocabulary: int, rounds: int, title: str) -> Table:
    table = Table("streams", *(f"{name} tok/s" for name in sides), "ours / best other", "same ids", title=title)
    for streams in STREAMS:
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        same = True
        for turn in range(rounds + 1):
            wanted = prompts(streams, PROMPT, vocabulary, seed=turn * 100 + streams)
            outputs = []
            for name, side in sides.items():
                begun = time.perf_counter()
                outputs.append(await side(wanted))
                speed = streams * OUTPUT / (time.perf_counter() - begun)
                print(f"{streams} streams, round {turn}, {name}: {speed:.1f} tok/s", file=sys.stderr)
                if turn:  # the first warms up
                    speeds[name].append(speed)
            same &= all(sorted(output) == sorted(outputs[0]) for output in outputs)
        medians = [statistics.median(found) for found in speeds.values()]
        ratio = medians[0] / max(medians[1:])
        table.add_row(str(streams), *(f"{one:.1f}" for one in medians), f"{ratio:.2f}", "yes" if same else "no")
    return table


async def latencies(ours: Worker, vocabulary: int) -> Table:
    table = Table("", "p50 ms", "p99 ms", "p99 / p50", "aim", title="between two tokens of 4 streams")
    for name, arrivals in (("alone", 0), (f"while prompts of {LONG:,} tokens arrive", 4)):
        running = [asyncio.create_task(ours.gaps(prompt, 100)) for prompt in prompts(4, PROMPT, vocabulary, seed=7 + arrivals)]
        await asyncio.sleep(1)
        for prompt in prompts(arrivals, LONG, vocabulary, seed=9):
            await ours.first(prompt)
        gaps = [gap * 1000 for task in running for gap in await task]
        p50, p99 = statistics.median(gaps), statistics.quantiles(gaps, n=100, method="inclusive")[98]
        table.add_row(name, f"{p50:.1f}", f"{p99:.1f}", f"{p99 / p50:.2f}", "<= 3" if arrivals else "")
    return table


async def prefixes(sides: dict[str, Worker], vocabulary: int) -> Table:
    table = Table("", "new ms", "known ms", "known / new", "aim", title=f"to the first token behind {PREFIX:,} tokens")
    for name, worker in sides.items():
        new, known = [], []
        for turn in range(4):
            (prefix,) = prompts(1, PREFIX, vocabulary, seed=1000 + turn)
            new.append(await worker.first([*prefix, 101, 102, 103]))
            known.append(await worker.first([*prefix, 104, 105, 106]))
        cold, warm = statistics.median(new), statistics.median(known)
        table.add_row(name, f"{cold * 1000:.0f}", f"{warm * 1000:.0f}", f"{warm / cold:.2f}", "<= 0.2")
    return table


async def bounds(ours: Worker, decoding: Decoding, vocabulary: int) -> Table:
    """Where the time between two tokens goes: to the model, beside what the machine would need at best, and to all that is around
    it (sampling, events, HTTP, this client)."""
    title = "one token of each stream, ms"
    heads = ("between tokens over HTTP", "forward", "around it", "reading at best", "arithmetic at best", "forward / best")
    table = Table("streams", *heads, title=title)
    for streams in STREAMS:
        running = [asyncio.create_task(ours.gaps(prompt, OUTPUT)) for prompt in prompts(streams, 96, vocabulary, seed=streams)]
        gap = statistics.median([gap for task in running for gap in await task])
        step = await asyncio.to_thread(decoding.step, streams)
        times = (gap, step.forward, gap - step.forward, step.reading, step.computing)
        best = max(step.reading, step.computing)
        table.add_row(str(streams), *(f"{one * 1000:.1f}" for one in times), f"{step.forward / best:.2f}")
    return table


async def measure(given: argparse.Namespace) -> None:
    folder = weights.weights_folder(given.model)
    dtype = getattr(torch, given.dtype)
    flags = ["--model", given.model, "--dtype", given.dtype, "--max-num-seqs", str(max(STREAMS)), "--log-level", "warning"]
    with ExitStack() as stack:
        ours = Worker(stack.enter_context(server("tandem", "generate", *flags, "--served-model-name", "m")))
        url = stack.enter_context(vllm_worker(given.peer, folder, given.dtype, CONTEXT))
        peers = {"vLLM": Worker(url)} if url else {}
        theirs = Transformers(folder, dtype)
        vocabulary: int = theirs.model.config.vocab_size
        sides: dict[str, Side] = {"tandem": ours.run, **{name: one.run for name, one in peers.items()}}
        sides |= {"generate": theirs.generate, "continuous batching": theirs.continuous}
        console = Console(width=160)
        console.print(await throughput(sides, vocabulary, given.rounds, f"{PROMPT} + {OUTPUT} tokens, {given.dtype}"))
        decoding = Decoding(pretrained.load(folder, torch.device("cpu"), dtype), Machine.measured())
        console.print(await bounds(ours, decoding, vocabulary))
        console.print(await latencies(ours, vocabulary))
        console.print(await prefixes({"tandem": ours, **peers}, vocabulary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a virtual environment that vLLM is installed in")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
