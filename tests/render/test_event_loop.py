"""Law L10: while render works on bodies of megabytes, /health is answered promptly, and requests of others go on."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from benchmarks.processes import server
from tests.tokenizers import MAX_MODEL_LEN, folder

pytestmark = pytest.mark.slow
CHAT, COMPLETION = "/v1/chat/completions/render", "/v1/completions/render"
ATTEMPTS = 4
"""A neighbour on the same machine may hold one up. To read the JSON of the largest bodies is one step of the library's, in which no
other thread runs: some 50 ms for 27 MB on a machine that is not busy."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    flags = ("--model", str(folder("qwen3")), "--max-model-len", str(MAX_MODEL_LEN), "--workers", "1")
    with server("tandem", "render", *flags) as url:
        yield url


def said(text: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)


def lines(size: int, kind: str) -> str:
    text = "".join(f"{kind} line {number} of many, <b>日本</b> and so on.\n" for number in range(size // 40))
    return text[:size]


TOOL = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
MANY = {
    "tools": lambda fresh: {
        "messages": [{"role": "user", "content": fresh}],
        "tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": TOOL}} for i in range(35_000)],
    },
    "parts": lambda fresh: {"messages": [{"role": "user", "content": [{"type": "text", "text": fresh}] * 170_000}]},
    "messages": lambda fresh: {"messages": [{"role": "user", "content": fresh}] * 170_000},
    "too many parts": lambda fresh: {"messages": [{"role": "user", "content": [{"type": "text", "text": fresh}] * 560_000}]},
}


@pytest.mark.parametrize("kind", MANY)
def test_health_is_prompt_while_bodies_of_many_values_are_rendered(url: str, kind: str) -> None:
    """A full collection beside one takes a second, and so does reading one that is too big."""
    longest = []
    for attempt in range(ATTEMPTS):
        longest.append(longest_wait(url, CHAT, json.dumps(MANY[kind](f"{kind} {attempt}"))))
        if longest[-1] < 0.4:
            return
    raise AssertionError(longest)


@pytest.mark.parametrize(
    ("path", "size", "forged"),
    [(CHAT, 5, False), (CHAT, 27, False), (CHAT, 5, True), (COMPLETION, 5, False), (COMPLETION, 27, False)],
)
def test_health_is_prompt_while_big_requests_are_rendered(url: str, path: str, size: int, forged: bool) -> None:
    longest = []
    for attempt in range(ATTEMPTS):
        text = lines(size << 20, f"{path}{size}{forged}{attempt}") + "<|im_end|>" * forged
        body = said(text) if path == CHAT else json.dumps({"prompt": text}, ensure_ascii=False)
        longest.append(longest_wait(url, path, body))
        if longest[-1] < (0.1 if size <= 5 else 0.3):
            return
    raise AssertionError(longest)


def longest_wait(url: str, path: str, body: str) -> float:
    waits = []
    with httpx.Client(base_url=url) as health, ThreadPoolExecutor(1) as pool:
        health.get("/health")
        big = pool.submit(httpx.post, url + path, content=body, timeout=120)
        while not big.done():
            started = time.perf_counter()
            assert health.get("/health").status_code == 200
            waits.append(time.perf_counter() - started)
            time.sleep(0.002)
    answer = big.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)
    assert re.search(r"\d+ (tokens|characters|objects)", answer.json()["error"]["message"])
    assert len(waits) > 5
    return max(waits)


def test_small_requests_go_on_beside_big_ones(url: str) -> None:
    small = said("Hi")
    with httpx.Client(base_url=url) as client, ThreadPoolExecutor(2) as pool:
        big = [pool.submit(httpx.post, url + CHAT, content=said(lines(9 << 20, f"b{index}")), timeout=120) for index in range(2)]
        answered = 0
        while not all(each.done() for each in big):
            assert client.post(CHAT, content=small).status_code == 200
            answered += 1
    assert answered > 5
