"""What render costs, as ratios taken in one run: `python -m benchmarks.render [--peer <virtual environment with vLLM>]`.

- chats of several sizes (Qwen3's tokenizer and template) over HTTP, one at a time and over four connections, against the bare call
(transformers' `apply_chat_template`, in process) and an empty FastAPI endpoint, and against vLLM's render service - a long
conversation with a new last message each time: one that the service has not seen before, against one that it has

All take turns at the same chats, of which none comes twice: a cache must not make up for what a new chat costs.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import PreTrainedTokenizerFast

from benchmarks.chats import JsonObject, chat, conversation
from benchmarks.connection import Connection
from benchmarks.peer import vllm
from benchmarks.processes import server
from tests.tokenizers import MAX_MODEL_LEN, folder

SIZES = {200: 300, 4000: 150, 32_000: 60}
"""Rounds by the tokens of the prompt, about."""
PREFIX, PREFIX_ROUNDS = 30_000, 30
WARM_UP = 2
FILL = 20
"""Large chats before all others: a tokenizer remembers the first ten thousand words that it meets, and none may know more than
another."""
CONNECTIONS, BURST = 4, 3
"""`BURST` requests over each of so many connections are one turn."""
TITLE = "chats rendered over HTTP, tools and several scripts in each (empty endpoint: kB up / down)"
PATH = "/v1/chat/completions/render"


@dataclass
class Times:
    """Milliseconds of each request, and those that all of them took together."""

    each: list[float] = field(default_factory=list)
    total: float = 0.0
    _unheard: int = WARM_UP

    def add(self, *each: float, total: float | None = None) -> None:
        """One turn's; the first turns warm up."""
        if self._unheard:
            self._unheard -= 1
            return
        self.each += each
        self.total += sum(each) if total is None else total

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def cells(self) -> tuple[str, str, str]:
        """Requests per second, p50, p99."""
        p99 = statistics.quantiles(self.each, n=100, method="inclusive")[98]
        return f"{len(self.each) / self.total * 1000:,.1f}", f"{self.median:.2f}", f"{p99:.2f}"


class Service:
    """A render service, with one connection for single requests and four for many at once."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.connection = Connection(url)
        self._connections = [Connection(url) for _ in range(CONNECTIONS)]
        self._pool = ThreadPoolExecutor(CONNECTIONS)

    def at_once(self, bodies: list[bytes], times: Times) -> None:
        def one(connection: Connection, share: list[bytes]) -> list[float]:
            return [connection.post(PATH, body)[0] for body in share]

        shares = [bodies[index::CONNECTIONS] for index in range(CONNECTIONS)]
        started = time.perf_counter()
        each = list(self._pool.map(one, self._connections, shares))
        total = (time.perf_counter() - started) * 1000
        times.add(*(milliseconds for share in each for milliseconds in share), total=total)


class Bare:
    """The call that render stands for, as it is made in process."""

    def __init__(self) -> None:
        files = folder("qwen3")
        template = json.loads((files / "tokenizer_config.json").read_bytes())["chat_template"]
        self.tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(files / "tokenizer.json"), chat_template=template)

    def __call__(self, request: JsonObject) -> tuple[float, list[int]]:
        started = time.perf_counter()
        ids: list[int] = self.tokenizer.apply_chat_template(
            request["messages"], tools=request["tools"], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return (time.perf_counter() - started) * 1000, ids


def encoded(request: JsonObject) -> bytes:
    return json.dumps(request, ensure_ascii=False).encode()


def one_size(table: Table, size: int, services: list[Service], bare: Bare, empty: Connection) -> None:
    """The services in turn, ours the first; then the bare call and the empty endpoint."""
    singles, crowds = [Times() for _ in services], [Times() for _ in services]
    floor, called = Times(), Times()
    lengths, kilobytes = [], []
    for attempt in range(WARM_UP + SIZES[size]):
        request, *others = (chat(size, attempt * (1 + CONNECTIONS * BURST) + index) for index in range(1 + CONNECTIONS * BURST))
        body, bodies = encoded(request), [encoded(other) for other in others]
        milliseconds, ids = bare(request)
        called.add(milliseconds)
        for service, single, crowd in zip(services, singles, crowds, strict=True):
            milliseconds, answer = service.connection.post(PATH, body)
            if json.loads(answer)["token_ids"] != ids:
                raise SystemExit(f"{service.name}'s ids are not those of the bare call: chat({size}, {attempt})")
            single.add(milliseconds)
            service.at_once(bodies, crowd)
            if service is services[0]:
                floor.add(empty.post(f"/sized?size={len(answer)}", body)[0])
                kilobytes.append((len(body) / 1000, len(answer) / 1000))
        lengths.append(len(ids))
    up, down = (f"{statistics.median(values):.1f}" for values in zip(*kilobytes, strict=True))
    ratio = f"{singles[0].median / (called.median + floor.median):.2f}"
    table.add_row(f"{statistics.median(lengths):,.0f}", services[0].name, *singles[0].cells, ratio, "of bare + empty", "<= 1.3")
    table.add_row("", f"{services[0].name}, {CONNECTIONS} connections", *crowds[0].cells)
    for service, single, crowd in zip(services[1:], singles[1:], crowds[1:], strict=True):
        ratio = f"{single.median / singles[0].median:.2f}"
        table.add_row("", service.name, *single.cells, ratio, f"of {services[0].name}", "> 1")
        ratio = f"{crowd.total / crowds[0].total:.2f}"
        table.add_row("", f"{service.name}, {CONNECTIONS} connections", *crowd.cells, ratio, f"of {services[0].name}", "> 1")
    table.add_row("", "bare call, in process", *called.cells)
    table.add_row("", f"empty endpoint, kB {up} / {down}", *floor.cells, end_section=True)


def turns(table: Table, services: list[Service]) -> None:
    """Last messages after a history that is another each time, and after the same one."""
    fresh, known = [Times() for _ in services], [Times() for _ in services]
    for attempt in range(WARM_UP + PREFIX_ROUNDS):
        new, again = encoded(conversation(PREFIX, attempt, 0)), encoded(conversation(PREFIX, -1, attempt))
        for service, cold, warm in zip(services, fresh, known, strict=True):
            cold.add(service.connection.post(PATH, new)[0])
            warm.add(service.connection.post(PATH, again)[0])
    for service, cold, warm in zip(services, fresh, known, strict=True):
        table.add_row(f"{PREFIX:,} + a message", f"{service.name}, new prefix", *cold.cells)
        ratio = f"{cold.median / warm.median:.2f}"
        table.add_row("", f"{service.name}, known prefix", *warm.cells, ratio, "times as fast as new", ">= 5")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peer", help="a virtual environment that vLLM is installed in")
    given = arguments.parse_args()
    flags = ("--model", str(folder("qwen3")), "--served-model-name", "m", "--max-model-len", str(MAX_MODEL_LEN))
    table = Table("prompt tokens", "", "requests/s", "p50 ms", "p99 ms", "ratio", "", "aim", title=TITLE)
    with (
        server("tandem", "render", *flags, "--log-level", "warning") as own,
        server("benchmarks.empty") as empty,
        vllm(given.peer) as theirs,
    ):
        services = [Service("tandem", own), *([Service("vLLM", theirs)] if theirs else [])]
        bare, floor = Bare(), Connection(empty)
        for seed in range(-FILL, 0):
            request = chat(max(SIZES), seed)
            bare(request)
            for service in services:
                service.connection.post(PATH, encoded(request))
        for size in SIZES:
            one_size(table, size, services, bare, floor)
        turns(table, services)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
