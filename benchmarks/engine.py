"""Tokens per second of the worker's engine against `transformers.generate`: the same model, prompts and process, in turn.

    python -m benchmarks.engine [--model smollm2] [--rounds 3] [--threads 0]

Each round runs both, one after the other, so that a busy machine slows both; the table shows medians over rounds, and the median
of the rounds' own ratios. `generate` gets all prompts as one batch that starts and ends together, the engine the same prompts as
independent requests. Greedy ids are compared as well.
"""

import argparse
import asyncio
import logging
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the worker sets it, before torch is imported; it serves both sides

import torch
from rich.console import Console
from rich.table import Table

from generate_worker.engine import attention
from generate_worker.engine.base import EngineRequest, Observer
from generate_worker.engine.loading import load_torch_engine
from generate_worker.engine.torch_engine import TorchEngine
from protocol.sampling import SamplingParams

STREAMS = (1, 8)


async def engine_run(engine: TorchEngine, prompts: list[list[int]], output: int) -> tuple[float, list[list[int]]]:
    async def one(index: int, prompt: list[int]) -> list[int]:
        request = EngineRequest(f"bench-{index}", prompt, SamplingParams(temperature=0), seed=0, max_tokens=output)
        generation = engine.submit(request)
        ids: list[int] = []
        while steps := await generation.next():
            ids += [token_id for step in steps for token_id in step.token_ids]
        return ids

    begun = time.perf_counter()
    outputs = await asyncio.gather(*(one(*pair) for pair in enumerate(prompts)))
    return time.perf_counter() - begun, list(outputs)


def generate_run(model: Any, prompts: list[list[int]], output: int) -> tuple[float, list[list[int]]]:
    ids = torch.tensor(prompts, device=model.device)
    begun = time.perf_counter()
    with torch.inference_mode():
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            eos_token_id=None,
        )
    ids_out: list[list[int]] = made[:, ids.shape[1] :].tolist()
    return time.perf_counter() - begun, ids_out


async def measure(arguments: argparse.Namespace) -> None:
    loaded = load_torch_engine(
        arguments.model,
        device="auto",
        dtype="auto",
        slots=max(STREAMS),
        max_queue=64,
        max_model_len=None,
        chunk_tokens=None,
        threads=arguments.threads,
        observer=Observer(),
    )
    engine = loaded.engine
    model: Any = engine.runner.model
    engine.start()
    torch.manual_seed(0)
    prompts: list[list[int]] = torch.randint(100, loaded.vocab_size, (max(STREAMS), arguments.prompt)).tolist()
    table = Table(
        "streams", "engine tok/s", "generate tok/s", "ratio", "same ids", title=f"{arguments.prompt} + {arguments.output} tokens"
    )
    for streams in STREAMS:
        ours, theirs, same = [], [], True
        for _ in range(arguments.rounds + 1):  # the first warms up
            model.set_attn_implementation(attention.NAME)
            seconds, ids = await engine_run(engine, prompts[:streams], arguments.output)
            ours.append(streams * arguments.output / seconds)
            model.set_attn_implementation("sdpa")
            seconds, expected = await asyncio.to_thread(generate_run, model, prompts[:streams], arguments.output)
            theirs.append(streams * arguments.output / seconds)
            same &= ids == expected
        ratios = [one / other for one, other in zip(ours[1:], theirs[1:], strict=True)]
        row = [f"{statistics.median(speeds):.1f}" for speeds in (ours[1:], theirs[1:])]
        table.add_row(str(streams), *row, f"{statistics.median(ratios):.2f}", "yes" if same else "no")
    await asyncio.to_thread(engine.close)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of both; 0 takes all cores")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
