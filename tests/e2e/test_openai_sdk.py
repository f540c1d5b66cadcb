"""The whole road with the real model: `tandem up`, four processes, and OpenAI's own client."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.tandem.test_up import READY, running

pytestmark = pytest.mark.slow

FRANCE: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = [
    "What is the capital of France?",
    "Write one line about the sea.",
    "Count from one to ten.",
    "Name three colours.",
    "What is two plus two?",
    "Say hello in Spanish.",
    "Who wrote Hamlet?",
    "Write a Python function that adds two numbers.",
]


@dataclass
class Running:
    """Addresses of the services, by name."""

    addresses: dict[str, str]

    @property
    def base_url(self) -> str:
        return self.addresses["gateway"] + "/v1"

    def worker_metric(self, name: str) -> float:
        lines = httpx.get(self.addresses["worker"] + "/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("up"), "--engine", "torch", "--derender-replicas", "2") as started:
        started.wait_for(READY)
        yield Running(started.addresses)


@pytest.fixture(scope="module")
def client(up: Running) -> OpenAI:
    return OpenAI(base_url=up.base_url, api_key="none", max_retries=0)


def test_paris(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0, max_tokens=40)
    (choice,) = answer.choices
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0, max_tokens=40)
    stream = client.chat.completions.create(
        model="smollm2", messages=FRANCE, temperature=0, max_tokens=40, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.model_copy(update={"prompt_tokens_details": None}) == whole.usage.model_copy(
        update={"prompt_tokens_details": None}
    )
    # The whole answer came first, and left the blocks of its prompt behind.
    assert last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens == last.usage.prompt_tokens // 16 * 16


def test_a_schema_is_kept_to(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "maximum": 99999999}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    for streamed in (False, True):
        answer: Any = client.chat.completions.create(
            model="smollm2", messages=FRANCE, temperature=1.5, seed=3, max_tokens=200, response_format=wanted, stream=streamed
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer) if streamed else answer.choices[0].message.content
        assert {key: type(value) for key, value in json.loads(text).items()} == {"city": str, "people": int}


def test_the_sdks_own_stream_helper(client: OpenAI) -> None:
    """It checks every chunk against OpenAI's types and accumulates them."""
    with client.chat.completions.stream(model="smollm2", messages=FRANCE, temperature=0, max_tokens=10, logprobs=True) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "length" or "Paris" in (final.choices[0].message.content or "")
    assert final.choices[0].logprobs is not None


def test_completions(client: OpenAI) -> None:
    asked = {"model": "smollm2", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 5}
    whole = client.completions.create(**asked, logprobs=2, echo=False)  # type: ignore[call-overload]
    assert "Paris" in whole.choices[0].text
    assert len(whole.choices[0].logprobs.tokens) == 5
    assert "".join(whole.choices[0].logprobs.tokens) == whole.choices[0].text
    stream = client.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_seed_and_n(client: OpenAI) -> None:
    """One seed, one answer; its choices differ from each other."""
    ask = lambda: client.chat.completions.create(  # noqa: E731
        model="smollm2", messages=FRANCE, temperature=1.0, seed=42, n=3, max_tokens=16
    )
    first, second = ask(), ask()
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) > 1
    assert [choice.index for choice in first.choices] == [0, 1, 2]


def test_stop_string(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0, max_tokens=40, stop=["Paris"])
    assert answer.choices[0].message.content == "The capital of France is "
    assert answer.choices[0].finish_reason == "stop"


def test_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=FRANCE, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 4
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.logprob <= 0


def test_errors_are_the_sdks_errors(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nope", messages=FRANCE)
    with pytest.raises(BadRequestError, match="max_tokens"):
        client.chat.completions.create(model="smollm2", messages=FRANCE, max_tokens=0)
    with pytest.raises(BadRequestError, match="role"):
        client.chat.completions.create(model="smollm2", messages=[{"role": "alien", "content": "x"}])  # type: ignore[list-item,misc]


def test_eight_streams_at_once_say_what_each_says_alone(up: Running) -> None:
    async def one(client: AsyncOpenAI, prompt: str) -> str:
        stream = await client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=24, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def both() -> tuple[list[str], list[str]]:
        async with AsyncOpenAI(base_url=up.base_url, api_key="none", max_retries=0) as client:
            alone = [await one(client, prompt) for prompt in PROMPTS]
            return alone, await asyncio.gather(*(one(client, prompt) for prompt in PROMPTS))

    alone, together = asyncio.run(both())
    assert together == alone
    assert all(alone)


def test_a_client_that_leaves_frees_its_slot(up: Running, client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=FRANCE, max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert up.worker_metric("tandem_requests_running") == 1
    stream.close()
    deadline = time.monotonic() + 3
    while up.worker_metric("tandem_requests_running"):
        assert time.monotonic() < deadline, "the worker still computes for a client that has left"
        time.sleep(0.05)
