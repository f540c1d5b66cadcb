"""What render costs, as ratios taken in one run: `python -m benchmarks.render [--peer <virtual environment with vLLM>]`.

- chats of several sizes (Qwen3's tokenizer and template) over HTTP, one at a time and over four connections, against the bare call
(transformers' `apply_chat_template`) in process plus an empty FastAPI endpoint, against the bare call behind such an endpoint, and
against vLLM's render service - a long conversation with a new last message each time: one that the service has not seen before,
and one that it has, against a service that keeps nothing

All take turns at the same chats, of which none comes twice: a cache must not make up for what a new chat costs.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.bare import call
from benchmarks.chats import JsonObject, chat, conversation
from benchmarks.connection import Connection
from benchmarks.peer import vllm
from benchmarks.processes import server
from tests.tokenizers import MAX_MODEL_LEN, folder

SIZES = {200: 60, 4000: 30, 32_000: 12}
"""Turns by the tokens of the prompt, about."""
PREFIX, PREFIX_TURNS = 30_000, 6
WARM_UP = 2
FILL = 20
"""Large chats before all others: a tokenizer remembers the first ten thousand words that it meets, and none may know more than
another."""
CONNECTIONS = 4
TURN = 8
"""Chats that each side takes in a turn, over each of its connections."""
SEEDS = count()
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


class Side(Protocol):
    """One of those that take turns."""

    name: str

    def one(self, request: JsonObject) -> tuple[float, list[int] | None]:
        """Milliseconds, and the ids of the prompt, where there are any."""


class Service:
    """A render service."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.sizes = (0, 0)
        """Bytes of the last body and its answer."""
        self._connections = [Connection(url) for _ in range(CONNECTIONS)]
        self._pool = ThreadPoolExecutor(CONNECTIONS)

    def one(self, request: JsonObject) -> tuple[float, list[int]]:
        body = encoded(request)
        milliseconds, answer = self._connections[0].post(PATH, body)
        self.sizes = len(body), len(answer)
        ids: list[int] = json.loads(answer)["token_ids"]
        return milliseconds, ids

    def many(self, requests: list[JsonObject]) -> tuple[list[float], float]:
        """Each one's milliseconds, and those of all of them, which go over several connections at once."""
        bodies = [encoded(request) for request in requests]

        def share(index: int) -> list[float]:
            return [self._connections[index].post(PATH, body)[0] for body in bodies[index::CONNECTIONS]]

        started = time.perf_counter()
        each = list(chain(*self._pool.map(share, range(CONNECTIONS))))
        return each, (time.perf_counter() - started) * 1000


class Bare:
    """The bare call in process. It runs in a thread, as ours does: what the main thread allocates lies between what loading has
    left there, which makes tokenizing half as slow again."""

    name = "bare call, in process"

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def one(self, request: JsonObject) -> tuple[float, list[int]]:
        return self._thread.submit(self._call, request).result()

    def _call(self, request: JsonObject) -> tuple[float, list[int]]:
        started = time.perf_counter()
        ids = call(request)
        return (time.perf_counter() - started) * 1000, ids


class Empty:
    """An endpoint that answers as many bytes as `like` did last, and no ids."""

    name = "empty endpoint"

    def __init__(self, url: str, like: Service) -> None:
        self._connection, self._like = Connection(url), like

    def one(self, request: JsonObject) -> tuple[float, None]:
        return self._connection.post(f"/sized?size={self._like.sizes[1]}", encoded(request))[0], None


def encoded(request: JsonObject) -> bytes:
    return json.dumps(request, ensure_ascii=False).encode()


def fresh(size: int, number: int) -> list[JsonObject]:
    return [chat(size, next(SEEDS)) for _ in range(number)]


def turned(sides: list[Side], turn: int) -> list[Side]:
    """Each comes first once: who comes after whom would tell otherwise."""
    first = turn % len(sides)
    return sides[first:] + sides[:first]


def one_by_one(sides: list[Side], size: int) -> tuple[dict[str, Times], int]:
    """What each side took, and the tokens of the last prompt. Ends the program where two sides have other ids.

    A turn is several chats: with the first, a process that had nothing to do wakes up.
    """
    times = {side.name: Times() for side in sides}
    length = 0
    for turn in range(WARM_UP + SIZES[size]):
        requests = fresh(size, TURN)
        found = []
        for side in turned(sides, turn):
            measured = [side.one(request) for request in requests]
            times[side.name].add([milliseconds for milliseconds, _ in measured])
            found += [ids for _, ids in measured[-1:] if ids is not None]
        length = len(found[0])
        if any(ids != found[0] for ids in found):
            raise SystemExit(f"not all give the same ids for a prompt of {length} tokens")
    return times, length


def at_once(services: list[Service], size: int) -> dict[str, Times]:
    times = {service.name: Times() for service in services}
    for turn in range(WARM_UP + SIZES[size] // 2):
        requests = fresh(size, CONNECTIONS * TURN)
        for service in services if turn % 2 else services[::-1]:
            times[service.name].add(*service.many(requests))
    return times


def one_size(table: Table, services: list[Service], bare: Bare, empty: Empty, size: int) -> None:
    """The first of the services is ours, the second the least one."""
    single, length = one_by_one([*services, bare, empty], size)
    crowd = at_once(services, size)
    own, least, *others = (service.name for service in services)
    ratio = single[own].median / (single[bare.name].median + single[empty.name].median)
    table.add_row(f"{length:,}", own, *single[own].cells, f"{ratio:.2f}", "of bare + empty", "<= 1.3")
    ratio = single[own].median / single[least].median
    table.add_row("", least, *single[least].cells, f"{ratio:.2f}", "tandem / this", "<= 1.3")
    table.add_row("", f"{own}, {CONNECTIONS} connections", *crowd[own].cells)
    for name in others:
        ratio = single[name].median / single[own].median
        table.add_row("", name, *single[name].cells, f"{ratio:.2f}", f"of {own}", "> 1")
        ratio = crowd[name].total / crowd[own].total
        table.add_row("", f"{name}, {CONNECTIONS} connections", *crowd[name].cells, f"{ratio:.2f}", f"of {own}", "> 1")
    table.add_row("", bare.name, *single[bare.name].cells)
    kilobytes = " / ".join(f"{size / 1000:.1f}" for size in services[0].sizes)
    table.add_row("", f"{empty.name}, kB {kilobytes}", *single[empty.name].cells, end_section=True)


def turns(table: Table, own: Service, uncached: Service, others: list[Service]) -> None:
    """Last messages after a history that is another each time, and after the same one."""
    services = [own, uncached, *others]
    new, known = {each.name: Times() for each in services}, {each.name: Times() for each in services}
    for turn in range(WARM_UP + PREFIX_TURNS):
        seeds = range(turn * TURN, (turn + 1) * TURN)
        for service in services:
            both = [
                (new, [conversation(PREFIX, seed, 0) for seed in seeds]),
                (known, [conversation(PREFIX, -1, seed) for seed in seeds]),
            ]
            for times, requests in both if turn % 2 else both[::-1]:
                times[service.name].add([service.one(request)[0] for request in requests])
    for index, service in enumerate(services):
        warm = known[service.name]
        table.add_row("" if index else f"{PREFIX:,} + a message", f"{service.name}, new prefix", *new[service.name].cells)
        ratio = f"{warm.median / known[own.name].median:.2f}"
        aim = (ratio, "of tandem", ">= 5") if index else ()
        table.add_row("", f"{service.name}, known prefix", *warm.cells, *aim)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peer", help="a virtual environment that vLLM is installed in")
    given = arguments.parse_args()
    model = ("--model", str(folder("qwen3")), "--served-model-name", "m", "--max-model-len", str(MAX_MODEL_LEN))
    flags = (*model, "--log-level", "warning")
    table = Table("prompt tokens", "", "requests/s", "p50 ms", "p99 ms", "ratio", "", "aim", title=TITLE)
    with (
        server("tandem", "render", *flags) as own,
        server("tandem", "render", *flags, "--tokenizer-cache-mib", "0") as uncached,
        server("benchmarks.bare") as least,
        server("benchmarks.empty") as empty,
        vllm(given.peer) as theirs,
    ):
        ours, peers = Service("tandem", own), [Service("vLLM", theirs)] if theirs else []
        services = [ours, Service("bare call, served", least), *peers]
        bare, nothing = Bare(), Empty(empty, ours)
        remembering: list[Side] = [*services, bare]
        for request in fresh(max(SIZES), FILL):
            for side in remembering:
                side.one(request)
        for size in SIZES:
            one_size(table, services, bare, nothing, size)
        turns(table, ours, Service("tandem without its cache", uncached), peers)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
