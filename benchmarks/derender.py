"""What derender costs, as ratios taken in one run: `python -m benchmarks.derender [--peer <virtual environment with vLLM>]`.

- one chunk of a parsed stream (reasoning and tool calls, Qwen3's tokenizer) over HTTP, at several positions, against an empty
FastAPI endpoint with the same body, and against vLLM's derender service, which is sent what it needs: the whole output so far -
one token in process, decoded and parsed - a whole output at once, against `tokenizer.decode` of the same ids - streams a
process serves in batches
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.connection import Connection
from benchmarks.peer import FLAGS, vllm
from benchmarks.processes import server
from derender_service.detokenizer import Detokenizer
from derender_service.parsers.driver import read
from derender_service.parsers.parsing import Declared, parsing_for
from derender_service.parsers.pieces import pieces
from derender_service.window import START
from model_profile.profile import ModelProfile, load
from tests.tokenizers import folder

POSITIONS = (10, 100, 500, 1000, 2000, 4000, 8000, 32_000)
PEER_POSITIONS = POSITIONS[:-1]
ROUNDS, PEER_ROUNDS = 300, 7
PATH = "/v1/chat/completions/derender"
TOOLS = [
    {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}
]
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": "auto"}
PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"

JsonObject = dict[str, Any]


def output(profile: ModelProfile, count: int) -> list[int]:
    """Half reasoning, a little content, and a call with one long argument."""
    half = "The quick brown fox, 日本語 and 👩, jumps over the lazy dog; so far, so good.\n" * (count // 40)
    call = '<tool_call>\n{"name": "look_up", "arguments": {"q": "' + half.replace("\n", "\\n") + '"}}\n</tool_call>'
    ids: list[int] = profile.tokenizer.encode(f"{half}</think>\n\nI will look.\n{call}", add_special_tokens=False).ids
    return ids


def event(token_ids: list[int]) -> JsonObject:
    choice = {"index": 0, "token_index": 0, "token_ids": token_ids, "logprobs": None, "finish_reason": None, "stop_reason": None}
    return {"type": "token", "request_id": "bench", "created": 1, "choices": [choice]}


def body(token_ids: list[int], state: Any, **context: Any) -> bytes:
    return json.dumps({"stream": True, "model": "m", "generate_chunk": event(token_ids), "stream_state": state, **context}).encode()


def timed(connection: Connection, path: str, data: bytes, rounds: int) -> tuple[float, int]:
    """The median of the milliseconds, and the bytes of the answer."""
    answers = [connection.post(path, data) for _ in range(rounds)]
    return statistics.median(milliseconds for milliseconds, _ in answers), len(answers[-1][1])


@dataclass
class Row:
    """One position: the next chunk's body as we need it and as vLLM does, and what was measured."""

    position: int
    body: bytes
    history: bytes
    ours: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    down: int = 0


def per_chunk(console: Console, profile: ModelProfile, derender: Connection, empty: Connection, peer: Connection | None) -> None:
    """Positions take turns, so that whatever else the machine does falls on all of them alike."""
    ids, prompt = output(profile, POSITIONS[-1] + 1000), profile.tokenizer.encode(PROMPT, add_special_tokens=False).ids
    context = {"chat_request": REQUEST, "prompt_token_ids": prompt}
    rows = []
    for position in POSITIONS:
        state = json.loads(derender.post(PATH, body(ids[:position], None, **context))[1])["stream_state"]
        told = {"role_sent": True, "output_token_ids": ids[:position], "output_chunk_lens": [1] * position}
        following = ids[position : position + 1]
        rows.append(Row(position, body(following, state), body(following, told, **context)))
    for _ in range(ROUNDS):
        for row in rows:
            row.floor.append(empty.post("/echo", row.body)[0])
            milliseconds, answer = derender.post(PATH, row.body)
            row.ours.append(milliseconds)
            row.down = len(answer)
    title = "one parsed chunk over HTTP (median ms; kB up / down)"
    table = Table(
        "position", "tandem", "", "empty endpoint", "tandem / empty", "tandem / its 10th", "vLLM", "", "vLLM / tandem", title=title
    )
    for row in rows:
        own, base = statistics.median(row.ours), statistics.median(row.floor)
        theirs = ["", "", ""]
        if peer is not None and row.position in PEER_POSITIONS:
            median, down = timed(peer, PATH, row.history, PEER_ROUNDS)
            theirs = [f"{median:.1f}", f"{len(row.history) / 1000:.1f} / {down / 1000:.1f}", f"{median / own:.0f}"]
        sizes = f"{len(row.body) / 1000:.1f} / {row.down / 1000:.1f}"
        first = statistics.median(rows[0].ours)
        table.add_row(str(row.position), f"{own:.2f}", sizes, f"{base:.2f}", f"{own / base:.2f}", f"{own / first:.2f}", *theirs)
    console.print(table)


def in_process(console: Console, profile: ModelProfile) -> None:
    detokenizer = Detokenizer(profile.tokenizer, profile.vocab_size)
    parsing = parsing_for(profile.tokenizer, "qwen3", "hermes")
    assert isinstance(parsing, Declared)
    grammar = parsing.grammars["auto"]
    ids, prompt = output(profile, 8000)[:8000], profile.tokenizer.encode(PROMPT, add_special_tokens=False).ids

    def parse(chunks: list[list[int]]) -> None:
        state, window = parsing.open(detokenizer, "auto", prompt), START
        for number, chunk in enumerate(chunks):
            found, window = pieces(detokenizer, grammar.marks, window, chunk, keep_special=False, join_added=False)
            state = read(grammar, state, found, last=number == len(chunks) - 1, types={}).state

    one_by_one = fastest(lambda: parse([[token_id] for token_id in ids]), rounds=5)
    decoded = fastest(lambda: profile.tokenizer.decode(ids))
    console.print(f"decode and parse in process, one id at a time: {one_by_one / len(ids) * 1e6:.1f} microseconds a token")
    console.print(f"8,000 ids at once, decoded and parsed: {fastest(lambda: parse([ids])) / decoded:.2f} x tokenizer.decode")


def batches(console: Console, profile: ModelProfile, derender: Connection) -> None:
    ids, prompt = output(profile, 2000), profile.tokenizer.encode(PROMPT, add_special_tokens=False).ids
    first = body(ids[:1000], None, chat_request=REQUEST, prompt_token_ids=prompt)
    state = json.loads(derender.post(PATH, first)[1])["stream_state"]
    item = json.loads(body(ids[1000:1001], state))
    for count in (1, 50, 500):
        data = json.dumps([item] * count).encode()
        median, _ = timed(derender, "/v1/derender/batch", data, 30)
        console.print(f"/v1/derender/batch, {count} streams a call: {count / median * 1000:,.0f} chunks a second")


def fastest(work: Callable[[], object], rounds: int = 20) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peer", help="a virtual environment that vLLM is installed in")
    given = arguments.parse_args()
    model = str(folder("qwen3"))
    profile = load(model, max_model_len=131_072)
    console = Console(width=140)
    command = ("tandem", "derender", "--model", model, "--served-model-name", "m", "--max-model-len", "131072", *FLAGS)
    with server(*command, "--log-level", "warning") as derender, server("benchmarks.empty") as empty, vllm(given.peer) as theirs:
        own = Connection(derender)
        per_chunk(console, profile, own, Connection(empty), Connection(theirs) if theirs else None)
        own.reopen()
        batches(console, profile, own)
    in_process(console, profile)


if __name__ == "__main__":
    main()
