"""Law L10: JSON as long as a long prompt is read and written by threads, while the event loop passes on other clients' streams."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import answers, assemble, derendering
from protocol.generate import NOT_THE_WORKERS
from protocol.sse import DONE
from service_kit.offload import JSON_BYTES
from tests.gateway.kit import Scripted, chat, events_of, pipeline, refusal, replay_worker, saying
from tests.tokenizers import MAX_MODEL_LEN

MODEL = "qwen3"
PROMPT = "word " * 20_000


class Watched:
    """The module `json`, which notes who worked on what is long."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def loads(self, text: bytes | str) -> Any:
        self._note(len(text))
        return json.loads(text)

    def dumps(self, value: Any, **how: Any) -> str:
        text = json.dumps(value, **how)
        self._note(len(text))
        return text

    def _note(self, size: int) -> None:
        if size > 2 * JSON_BYTES:
            self.threads.append(threading.current_thread().name)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    for module in (answers, derendering):
        monkeypatch.setattr(module, "json", watched)
    return watched


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    script = {"token_ids": [9, 8, 7], "finish_reason": "length"}
    worker = replay_worker(tmp_path_factory.mktemp("replay"), script, model=MODEL, max_model_len=MAX_MODEL_LEN)
    with pipeline(worker, model=MODEL) as client:
        yield client


@pytest.mark.parametrize("way", [{"stream": True}, {}, {"stop": "zzz"}, {"return_token_ids": True}, {"echo": True}], ids=str)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_long_prompts_are_read_and_written_by_threads(
    client: httpx.Client, watched: Watched, path: str, way: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in path else {"prompt": [PROMPT, "Hi"]}
    answer = client.post(path, json={"model": MODEL, "max_tokens": 3, **asked, **way})
    assert answer.status_code == 200, answer.text
    if way.get("stream"):
        assert events_of(answer)[-1] == DONE
    assert len(watched.threads) >= 3
    assert all(name.startswith("tandem-") for name in watched.threads), watched.threads


@pytest.mark.parametrize("stream", [True, False])
def test_the_worker_is_sent_what_is_its_own(stream: bool) -> None:
    worker = Scripted(saying("Hello"), refuse=refusal(400, "no"))
    with pipeline(worker) as client:
        assert client.post("/v1/chat/completions", json=chat(stream=stream, return_token_offsets=True)).status_code == 400
    (asked,) = worker.asked
    assert asked["token_ids"]
    assert not NOT_THE_WORKERS & asked.keys()


def test_each_chunk_is_added_in_a_time_of_its_own_size() -> None:
    """Twice as many take twice as long, or three times on a busy machine: not four times."""

    def chunk(at: int) -> dict[str, Any]:
        call = {"index": 0, "function": {"arguments": "x" * 20}}
        delta = {"content": "y" * 20, "tool_calls": [call]}
        choice = {"index": 0, "delta": delta, "logprobs": {"content": [at]}, "token_ids": [at], "finish_reason": None}
        return {"id": "i", "choices": [choice]}

    count = 40_000
    whole = assemble.assemble(map(chunk, range(count)), "o")["choices"][0]
    assert whole["token_ids"] == whole["logprobs"]["content"] == list(range(count))
    assert whole["message"]["content"] == "y" * 20 * count
    assert whole["message"]["tool_calls"][0]["function"]["arguments"] == "x" * 20 * count

    def seconds(count: int) -> float:
        chunks = [chunk(at) for at in range(count)]
        times = []
        for _ in range(3):
            began = time.process_time()
            assemble.assemble(chunks, "o")
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(2 * count) < 3 * seconds(count)
