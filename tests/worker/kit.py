"""A tiny model, a live worker, and a reader that holds every stream to the protocol's laws."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from fastapi import FastAPI, Request
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig

from generate_worker.app import WorkerSettings, create_app
from protocol.events import DoneEvent, ErrorEvent, GenerateEvent, TokenEvent, parse_event
from protocol.sse import DONE, SSEDecoder
from tests.live import serving

VOCAB = 512
EOS = 2
MAX_LEN = 256
NAME = "tiny"


def write_model(folder: Path, config: PreTrainedConfig, seed: int = 0) -> Path:
    """A model of random weights. They are large, so that its logits lie far apart and greedy choices are no coin tosses."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.15)
    model.save_pretrained(folder)
    return folder


def tiny_config(**changes: Any) -> LlamaConfig:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0}
    return LlamaConfig(**{"vocab_size": VOCAB, "max_position_embeddings": MAX_LEN, **sizes, **ids, **changes})


def settings(**given: Any) -> WorkerSettings:
    return WorkerSettings(**{"served_model_name": NAME, "device": "cpu", "torch_threads": 1, "log_level": "error", **given})


@dataclass
class Live:
    """A worker that is being served."""

    app: FastAPI
    url: str

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=60)

    def metric(self, name: str) -> float:
        """The sum over a metric's labels."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == f"tandem_{name}")

    async def becomes(self, name: str, value: float, seconds: float = 5.0) -> None:
        """Waits until a metric has a value."""
        for _ in range(int(seconds / 0.02)):
            if await asyncio.to_thread(self.metric, name) == value:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} is {self.metric(name)}, not {value}")


async def expire(request: Request) -> None:
    """A route of the tests alone: the drain limit has passed."""
    request.app.state.lifecycle.expire()


@contextmanager
def live(**given: Any) -> Iterator[Live]:
    app = create_app(settings(**given))
    app.add_api_route("/expire", expire)
    with serving(app) as url:
        yield Live(app, url)


def body(token_ids: list[int], *, stream: bool = True, **given: Any) -> dict[str, Any]:
    """A request; keyword arguments that are sampling parameters go where they belong."""
    top = {"request_id", "model", "return_token_ids", "output_token_ids", "priority", "cache_salt"}
    params = {"temperature": 0, **{k: v for k, v in given.items() if k not in top}}
    return {"token_ids": token_ids, "stream": stream, "sampling_params": params, **{k: v for k, v in given.items() if k in top}}


@dataclass
class Told:
    """A stream, read to its end."""

    events: list[GenerateEvent] = field(default_factory=list)
    finished_by_done: bool = False

    @property
    def error(self) -> ErrorEvent | None:
        return next((event for event in self.events if isinstance(event, ErrorEvent)), None)

    @property
    def dones(self) -> dict[int, DoneEvent]:
        return {event.choices[0].index: event for event in self.events if isinstance(event, DoneEvent)}

    @property
    def last(self) -> DoneEvent:
        last = self.events[-1]
        assert isinstance(last, DoneEvent)
        return last

    def ids(self, choice: int = 0) -> list[int]:
        chosen = [event.choices[0] for event in self.events if isinstance(event, TokenEvent | DoneEvent)]
        return [token_id for one in chosen if one.index == choice for token_id in one.token_ids]

    def logprobs(self, choice: int = 0) -> list[Any]:
        chosen = [event.choices[0] for event in self.events if isinstance(event, TokenEvent | DoneEvent)]
        return [entry for one in chosen if one.index == choice and one.logprobs for entry in one.logprobs.content or []]


@asynccontextmanager
async def opened(client: httpx.AsyncClient, request: dict[str, Any]) -> AsyncIterator[AsyncIterator[GenerateEvent]]:
    """The events of a stream, while its connection is open."""
    async with client.stream("POST", "/inference/v1/generate", json=request) as response:
        assert response.status_code == 200, (await response.aread()).decode()

        async def events() -> AsyncIterator[GenerateEvent]:
            decoder = SSEDecoder()
            async for chunk in response.aiter_bytes():
                for event in decoder.feed(chunk):
                    if event.data != DONE:
                        parsed = parse_event(event.data)
                        assert event.event == parsed.type
                        yield parsed

        yield events()


async def stream(client: httpx.AsyncClient, request: dict[str, Any]) -> Told:
    """Reads a stream to its end and checks every law of the protocol that a stream by itself can show."""
    told = Told()
    decoder = SSEDecoder()
    async with client.stream("POST", "/inference/v1/generate", json=request) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        async for chunk in response.aiter_bytes():
            for event in decoder.feed(chunk):
                assert not told.finished_by_done, "something follows [DONE]"
                if event.data == DONE:
                    told.finished_by_done = True
                else:
                    parsed = parse_event(event.data)
                    assert event.event == parsed.type
                    told.events.append(parsed)
    assert not decoder.pending
    assert_lawful(told, request)
    return told


def assert_lawful(told: Told, request: dict[str, Any]) -> None:
    n = request["sampling_params"].get("n", 1)
    resumed = len(request.get("output_token_ids") or [])
    lengths = dict.fromkeys(range(n), resumed)
    open_choices = set(lengths)
    assert len({event.request_id for event in told.events}) == 1
    for place, event in enumerate(told.events):
        if isinstance(event, ErrorEvent):
            assert place == len(told.events) - 1, "something follows the error"
            assert not told.finished_by_done
            return
        choice = event.choices[0]
        assert choice.index in open_choices, "an event of a choice that has ended"
        assert choice.token_index == lengths[choice.index]
        lengths[choice.index] += len(choice.token_ids)
        assert place == 0 or (event.seed is None and event.prompt_token_ids is None)
        if isinstance(event, TokenEvent):
            continue
        open_choices.discard(choice.index)
        assert event.choices[0].output_tokens == lengths[choice.index]
        assert len(choice.token_ids) == (1 if event.choices[0].finish_reason == "stop" else 0)
        if open_choices:
            assert event.usage is None
            assert event.timings is None
            continue
        usage, timings = event.usage, event.timings
        assert usage is not None
        assert timings is not None
        assert usage.prompt_tokens == len(request["token_ids"])
        assert usage.completion_tokens == sum(lengths.values())
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert timings.total_ms == timings.queue_ms + timings.execution_ms
        assert (timings.ttft_ms is None) == (sum(lengths.values()) == n * resumed)
    assert not open_choices, "the stream ended before its choices"
    assert told.finished_by_done
