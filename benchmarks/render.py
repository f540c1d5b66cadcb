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
from functools import partial
from itertools import chain
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import PreTrainedTokenizerFast

from benchmarks.chats import JsonObject, chat, conversation
from benchmarks.connection import Connection
from benchmarks.peer import vllm
from benchmarks.processes import server
from tests.tokenizers import MAX_MODEL_LEN, folder

SIZES = {200: 100, 4000: 60, 32_000: 40}
"""Turns by the tokens of the prompt, about."""
PREFIX, PREFIX_ROUNDS = 30_000, 30
WARM_UP = 2
FILL = 20
"""Large chats before all others: a tokenizer remembers the first ten thousand words that it meets, and none may know more than
another."""
CONNECTIONS = 4
TURN = 3
"""Chats that each side takes in a turn, over each of its connections."""
BARE, EMPTY = "bare call, in process", "empty endpoint"
TITLE = "chats rendered over HTTP, tools and several scripts in each (empty endpoint: kB up / down)"
PATH = "/v1/chat/completions/render"


@dataclass
class Times:
    """Milliseconds of each request, and those that all of them took together."""

    each: list[float] = field(default_factory=list)
    total: float = 0.0
    _unheard: int = WARM_UP

    def add(self, each: list[float], total: float | None = None) -> None:
        """One turn's. The first turns warm up."""
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
    """A render service."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.connection = Connection(url)
        self._connections = [Connection(url) for _ in range(CONNECTIONS)]
        self._pool = ThreadPoolExecutor(CONNECTIONS)

    def one(self, body: bytes) -> tuple[float, bytes]:
        return self.connection.post(PATH, body)

    def many(self, bodies: list[bytes]) -> tuple[list[float], float]:
        """Each one's milliseconds, and those of all of them, which go over several connections at once."""
        shares = [bodies[index::CONNECTIONS] for index in range(CONNECTIONS)]
        send = lambda pair: [pair[0].post(PATH, body)[0] for body in pair[1]]  # noqa: E731
        started = time.perf_counter()
        shared = list(self._pool.map(send, zip(self._connections, shares, strict=True)))
        return list(chain(*shared)), (time.perf_counter() - started) * 1000


class Bare:
    """The call that render stands for, as it is made in process."""

    def __init__(self) -> None:
        files = folder("qwen3")
        template = json.loads((files / "tokenizer_config.json").read_bytes())["chat_template"]
        self.tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(files / "tokenizer.json"), chat_template=template)

    def one(self, request: JsonObject) -> tuple[float, list[int]]:
        started = time.perf_counter()
        ids: list[int] = self.tokenizer.apply_chat_template(
            request["messages"], tools=request["tools"], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return (time.perf_counter() - started) * 1000, ids


@dataclass
class Sides:
    services: list[Service]
    bare: Bare
    empty: Connection


def encoded(request: JsonObject) -> bytes:
    return json.dumps(request, ensure_ascii=False).encode()


def turned(names: list[str], turn: int) -> list[str]:
    """Each comes first once: who comes after whom would tell otherwise."""
    first = turn % len(names)
    return names[first:] + names[:first]


def one_by_one(sides: Sides, size: int) -> tuple[dict[str, Times], int, str]:
    """What each took, the tokens of a prompt, and the kilobytes of a body and its answer.

    A turn is several chats: with the first, a process that had nothing to do wakes up.
    """
    services = {service.name: service for service in sides.services}
    times = {name: Times() for name in (*services, BARE, EMPTY)}
    sizes, length = [0, 2], 0
    for turn in range(WARM_UP + SIZES[size]):
        requests = [chat(size, turn * TURN + index) for index in range(TURN)]
        bodies = [encoded(request) for request in requests]
        ids: dict[str, list[list[int]]] = {}
        for name in turned(list(times), turn):
            if name == BARE:
                measured = [sides.bare.one(request) for request in requests]
                ids[name] = [found for _, found in measured]
                times[name].add([milliseconds for milliseconds, _ in measured])
                continue
            post = services[name].one if name in services else partial(sides.empty.post, f"/sized?size={sizes[1]}")
            answers = [post(body) for body in bodies]
            times[name].add([milliseconds for milliseconds, _ in answers])
            if name in services:
                ids[name] = [json.loads(answer)["token_ids"] for _, answer in answers]
            if name == sides.services[0].name:
                sizes = [len(bodies[-1]), len(answers[-1][1])]
        length = len(ids[BARE][-1])
        for name, found in ids.items():
            if found != ids[BARE]:
                raise SystemExit(f"{name}'s ids are not those of the bare call, with a chat of {length} tokens")
    return times, length, " / ".join(f"{count / 1000:.1f}" for count in sizes)


def at_once(services: list[Service], size: int) -> dict[str, Times]:
    times = {service.name: Times() for service in services}
    for turn in range(WARM_UP + SIZES[size] // 2):
        first = -1 - turn * CONNECTIONS * TURN
        bodies = [encoded(chat(size, first - index)) for index in range(CONNECTIONS * TURN)]
        for service in services if turn % 2 else services[::-1]:
            times[service.name].add(*service.many(bodies))
    return times


def one_size(table: Table, sides: Sides, size: int) -> None:
    single, length, kilobytes = one_by_one(sides, size)
    crowd = at_once(sides.services, size)
    own, *others = (service.name for service in sides.services)
    ratio = single[own].median / (single[BARE].median + single[EMPTY].median)
    table.add_row(f"{length:,}", own, *single[own].cells, f"{ratio:.2f}", "of bare + empty", "<= 1.3")
    table.add_row("", f"{own}, {CONNECTIONS} connections", *crowd[own].cells)
    for name in others:
        ratio = single[name].median / single[own].median
        table.add_row("", name, *single[name].cells, f"{ratio:.2f}", f"of {own}", "> 1")
        ratio = crowd[name].total / crowd[own].total
        table.add_row("", f"{name}, {CONNECTIONS} connections", *crowd[name].cells, f"{ratio:.2f}", f"of {own}", "> 1")
    table.add_row("", BARE, *single[BARE].cells)
    table.add_row("", f"{EMPTY}, kB {kilobytes}", *single[EMPTY].cells, end_section=True)


def turns(table: Table, services: list[Service]) -> None:
    """Last messages after a history that is another each time, and after the same one."""
    fresh, known = [Times() for _ in services], [Times() for _ in services]
    for attempt in range(WARM_UP + PREFIX_ROUNDS):
        new, again = encoded(conversation(PREFIX, attempt, 0)), encoded(conversation(PREFIX, -1, attempt))
        for service, cold, warm in zip(services, fresh, known, strict=True):
            cold.add([service.one(new)[0]])
            warm.add([service.one(again)[0]])
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
        sides = Sides(services, Bare(), Connection(empty))
        for seed in range(-FILL, 0):
            request = chat(max(SIZES), seed)
            sides.bare.one(request)
            for service in services:
                service.one(encoded(request))
        for size in SIZES:
            one_size(table, sides, size)
        turns(table, services)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
