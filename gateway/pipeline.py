"""One client request on its way: render, generate, derender."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gateway.answers import blamed, derendered, generated, rendered
from gateway.asked import CHAT, COMPLETION, Endpoint, Peek
from gateway.assemble import assemble
from gateway.derendering import Derendering, merged, with_field
from gateway.generation import GENERATE, Generation
from gateway.merge import merge
from gateway.metrics import GatewayMetrics
from gateway.upstreams import Upstream
from protocol.errors import ErrorResponse, RelayedError, TandemError
from protocol.sse import DONE, encode
from protocol.usage import CompletionTokensDetails, PromptTokensDetails, Usage

JsonObject = dict[str, Any]

PROMPTS_AT_ONCE = 8
"""Of a request with many prompts: a worker's queue is for all clients, and would refuse more than it can hold."""


@dataclass(frozen=True)
class Services:
    """What stands behind the gateway."""

    render: Upstream
    worker: Upstream
    derender: Upstream
    metrics: GatewayMetrics


class Exchange:
    """A request of one of OpenAI's endpoints. `body` is the client's JSON, `peek` what the gateway reads of it."""

    def __init__(self, services: Services, endpoint: Endpoint, body: bytes, peek: Peek) -> None:
        self._services, self._endpoint, self._body, self._peek = services, endpoint, body, peek
        self._started = time.perf_counter()
        self._created = int(time.time())
        self._turns = asyncio.Semaphore(PROMPTS_AT_ONCE)

    async def answer(self) -> bytes:
        """The whole answer. Raises `TandemError`."""
        requests = await self._render()
        if self._peek.stop:
            # Only derender knows when a stop string has come: the output is read as it grows, so that it can be ended there.
            async with aclosing(self._chunks(requests)) as chunks:
                answer = assemble([chunk async for chunk in chunks], self._endpoint.object)
        else:
            responses = await asyncio.gather(*(self._generated(request) for request in requests))
            body = self._batch_body(requests, responses)
            try:
                answer = derendered(await self._services.derender.post(self._endpoint.derender_path, body))
            except RelayedError as error:
                raise blamed(error) from error
        return _dumped({**answer, "id": self._id(requests), "created": self._created})

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream, as encoded events. Raises `TandemError` before the first; a later failure is an error event and the end."""
        requests = await self._render()
        opened = False
        try:
            async with aclosing(self._chunks(requests)) as chunks:
                async for chunk in chunks:
                    if not any(map(_tells, chunk["choices"])) and not (self._peek.include_usage and "usage" in chunk):
                        continue
                    if self._peek.include_usage:
                        chunk.setdefault("usage", None)
                    if not opened:
                        opened = True
                        self._services.metrics.first_token.observe(time.perf_counter() - self._started)
                    yield encode(_dumped(chunk))
        except TandemError as error:
            if not opened:
                raise
            yield error_event(error)
        else:
            yield encode(DONE)

    async def _render(self) -> list[JsonObject]:
        body = await self._services.render.post(self._endpoint.render_path, self._body)
        return rendered(body, several=self._endpoint is COMPLETION)

    def _id(self, requests: Sequence[JsonObject]) -> str:
        """One id for the whole answer: several prompts have ids `<id>-<place>`."""
        first: str = requests[0]["request_id"]
        return first.removesuffix("-0") if len(requests) > 1 else first

    async def _generated(self, request: JsonObject) -> JsonObject:
        async with self._turns:
            return generated(await self._services.worker.post(GENERATE, _dumped({**request, "stream": False})))

    def _batch_body(self, requests: Sequence[JsonObject], responses: Sequence[JsonObject]) -> bytes:
        ids = [request["token_ids"] for request in requests]
        head: JsonObject = {"model": requests[0].get("model"), "profile": requests[0].get("profile")}
        if self._endpoint is CHAT:
            head |= {"generate_response": responses[0], "prompt_tokens": len(ids[0]), "prompt_token_ids": ids[0]}
        else:
            counts = [len(prompt) for prompt in ids]
            head |= {"generate_responses": responses, "prompt_tokens": counts, "prompt_token_ids": ids}
        return with_field(head, self._endpoint.original_field, self._body)

    async def _chunks(self, requests: Sequence[JsonObject]) -> AsyncGenerator[JsonObject, None]:
        """OpenAI's chunks of all prompts as they come, and at last one without choices that has the usage."""
        answer_id = self._id(requests)
        outputs = [
            _Output(self._services, self._endpoint, self._body, request, place, self._turns)
            for place, request in enumerate(requests)
        ]
        last: JsonObject = {}
        async with aclosing(merge([output.chunks() for output in outputs])) as chunks:
            async for chunk in chunks:
                last = chunk = {**chunk, "id": answer_id, "created": self._created}
                yield chunk
        usage = Usage.of(sum(output.prompt_tokens for output in outputs), sum(output.output_tokens for output in outputs))
        reasoning = [output.reasoning_tokens for output in outputs if output.reasoning_tokens is not None]
        if reasoning:
            usage.completion_tokens_details = CompletionTokensDetails(reasoning_tokens=sum(reasoning))
        details = [output.prompt_tokens_details for output in outputs if output.prompt_tokens_details is not None]
        if details and len(outputs) == 1:
            usage.prompt_tokens_details = details[0]
        once = ("timings", "prompt_token_ids")
        yield {**{key: value for key, value in last.items() if key not in once}, "choices": [], "usage": usage.model_dump()}


class _Output:
    """The choices of one prompt. Counts are of what the client was given."""

    def __init__(
        self, services: Services, endpoint: Endpoint, body: bytes, request: JsonObject, place: int, turns: asyncio.Semaphore
    ) -> None:
        self._turns = turns
        self._n: int = request["sampling_params"].get("n") or 1
        self._shift = place * self._n
        self._generation = Generation(services.worker, services.metrics, request)
        self._derendering = Derendering(services.derender, endpoint, body, request)
        self.prompt_tokens = len(request["token_ids"])
        self.prompt_tokens_details: PromptTokensDetails | None = None

    @property
    def output_tokens(self) -> int:
        return self._derendering.output_tokens

    @property
    def reasoning_tokens(self) -> int | None:
        return self._derendering.reasoning_tokens

    async def chunks(self) -> AsyncGenerator[JsonObject, None]:
        """Ends when every choice has: by the worker's word, or because derender found a stop string. Leaving this stops the
        worker."""
        ended: set[int] = set()
        async with self._turns, aclosing(self._generation.batches()) as batches:
            async for batch in batches:
                for event in merged(batch):
                    if event.choices[0].index in ended:
                        continue
                    chunk = await self._derendering.chunk(event)
                    self._take_usage(chunk)
                    for choice in chunk["choices"]:
                        if choice["finish_reason"] is not None:
                            ended.add(choice["index"])
                        choice["index"] += self._shift
                    yield chunk
                if len(ended) == self._n:
                    return

    def _take_usage(self, chunk: JsonObject) -> None:
        usage = chunk.pop("usage", None)
        if usage and usage.get("prompt_tokens_details"):
            self.prompt_tokens_details = PromptTokensDetails.model_validate(usage["prompt_tokens_details"])


def _tells(choice: JsonObject) -> bool:
    """Whether a client would miss this choice of a chunk. Text that a parser or a stop string holds back leaves none behind."""
    return any(value for key, value in choice.items() if key != "index")


def error_event(error: TandemError) -> bytes:
    """How a stream that has begun tells its client that it failed: OpenAI's clients raise on it."""
    return encode(ErrorResponse(error=error.info).wire())


def _dumped(value: JsonObject) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
