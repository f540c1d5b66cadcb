"""What derender costs, as ratios taken in one run: `python -m benchmarks.derender`.

- one chunk over HTTP, at several positions of a stream, against an empty FastAPI endpoint with the same body
- a whole answer in process, against `tokenizer.decode` of the same ids
"""

import http.client
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.processes import server
from derender_service.detokenizer import Detokenizer
from model_profile.profile import load

POSITIONS = (10, 500, 1000, 4000, 8000)
ROUNDS = 400
TEXT = "The quick brown fox, 日本語 and 👩 jump over the lazy dog; "
PATH = "/v1/completions/derender"


class Connection:
    """One keep-alive connection, without a client library's own cost in the figures."""

    def __init__(self, url: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc)

    def post(self, path: str, body: bytes) -> tuple[float, bytes]:
        """Milliseconds, and the answer."""
        started = time.perf_counter()
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse().read()
        return (time.perf_counter() - started) * 1000, answer


def chunk(token_ids: list[int], state: Any) -> bytes:
    choice = {"index": 0, "token_index": 0, "token_ids": token_ids, "logprobs": None, "finish_reason": None, "stop_reason": None}
    event = {"type": "token", "request_id": "bench", "created": 1, "choices": [choice]}
    return json.dumps({"stream": True, "model": "smollm2", "generate_chunk": event, "stream_state": state}).encode()


def per_chunk(table: Table, ids: list[int], derender: Connection, empty: Connection) -> None:
    context = {"prompt_token_ids": ids[:20], "completion_request": {"prompt": "x", "stop": ["never"]}}
    for position in POSITIONS:
        first = json.loads(chunk(ids[:position], None)) | context
        state = json.loads(derender.post(PATH, json.dumps(first).encode())[1])["stream_state"]
        body = chunk(ids[position : position + 1], state)
        ours, floor = [], []
        for _ in range(ROUNDS):
            floor.append(empty.post("/echo", body)[0])
            milliseconds, answer = derender.post(PATH, body)
            ours.append(milliseconds)
        row = (statistics.median(ours), statistics.median(floor))
        sizes = f"{len(body)} / {len(answer)}"
        table.add_row(str(position), f"{row[0]:.2f}", f"{row[1]:.2f}", f"{row[0] / row[1]:.2f}", sizes)


def fastest(work: Callable[[], object], rounds: int = 20) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def main() -> None:
    profile = load("smollm2")
    tokenizer = profile.tokenizer
    ids = (tokenizer.encode(TEXT * 600, add_special_tokens=False).ids)[:8100]
    console = Console()
    table = Table("position", "derender ms", "empty ms", "ratio", "bytes up / down", title="one chunk over HTTP (medians)")
    with server("tandem", "derender", "--log-level", "warning") as derender, server("benchmarks.empty") as empty:
        per_chunk(table, ids, Connection(derender), Connection(empty))
    console.print(table)
    detokenizer = Detokenizer(tokenizer, profile.vocab_size)
    ours = fastest(lambda: detokenizer.whole(ids[:8000], keep_special=False))
    theirs = fastest(lambda: tokenizer.decode(ids[:8000]))
    console.print(f"8,000 ids at once, in process: {ours / theirs:.2f} x tokenizer.decode")


if __name__ == "__main__":
    main()
