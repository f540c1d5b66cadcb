"""One client request on its way: render, generate, derender."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.answers import Rendered, blamed, derendered, generated, rendered, written
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
from service_kit.offload import by_length, offload

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
        prompts = await self._render()
        own = {"id": _id(prompts), "created": self._created}
        if self._peek.stop:
            # Only derender knows when a stop string has come: the output is read as it grows, so that it can be ended there.
            async with aclosing(self._chunks(prompts)) as all_chunks:
                chunks = [chunk async for chunk in all_chunks]
            return await offload(lambda: written({**assemble(chunks, self._endpoint.object), **own}))
        responses = await asyncio.gather(*(self._generated(prompt) for prompt in prompts))
        size = sum(prompt.size for prompt in prompts) + sum(map(len, responses))
        body = await by_length(size, partial(self._batch_body, prompts, responses))
        try:
            answer = await self._services.derender.post(self._endpoint.derender_path, body)
        except RelayedError as error:
            raise blamed(error) from error
        return await by_length(len(answer), lambda: written({**derendered(answer), **own}))

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream, as encoded events. Raises `TandemError` before the first; a later failure is an error event and the end."""
        prompts = await self._render()
        opened = False
        try:
            async with aclosing(self._chunks(prompts)) as chunks:
                async for chunk in chunks:
                    if not any(map(_tells, chunk["choices"])) and not (self._peek.include_usage and "usage" in chunk):
                        continue
                    if self._peek.include_usage:
                        chunk.setdefault("usage", None)
                    if not opened:
                        opened = True
                        self._services.metrics.first_token.observe(time.perf_counter() - self._started)
                    yield encode(await by_length(_size(chunk), partial(written, chunk)))
        except TandemError as error:
            if not opened:
                raise
            yield error_event(error)
        else:
            yield encode(DONE)

    async def _render(self) -> list[Rendered]:
        body = await self._services.render.post(self._endpoint.render_path, self._body)
        return await by_length(len(body), partial(rendered, body, several=self._endpoint is COMPLETION))

    async def _generated(self, prompt: Rendered) -> bytes:
        async with self._turns:
            body = await by_length(prompt.size, lambda: written({**prompt.request, "stream": False}))
            return await self._services.worker.post(GENERATE, body)

    def _batch_body(self, prompts: Sequence[Rendered], answers: Sequence[bytes]) -> bytes:
        """Raises `UpstreamError` for an answer that is none."""
        ids, responses = [prompt.token_ids for prompt in prompts], list(map(generated, answers))
        head: JsonObject = {"model": prompts[0].request.get("model"), "profile": prompts[0].request.get("profile")}
        if self._endpoint is CHAT:
            head |= {"generate_response": responses[0], "prompt_tokens": len(ids[0]), "prompt_token_ids": ids[0]}
        else:
            counts = [len(prompt) for prompt in ids]
            head |= {"generate_responses": responses, "prompt_tokens": counts, "prompt_token_ids": ids}
        return with_field(head, self._endpoint.original_field, self._body)

    async def _chunks(self, prompts: Sequence[Rendered]) -> AsyncGenerator[JsonObject, None]:
        """OpenAI's chunks of all prompts as they come, and at last one without choices that has the usage."""
        answer_id = _id(prompts)
        outputs = [
            _Output(self._services, self._endpoint, self._body, prompt, place, self._turns) for place, prompt in enumerate(prompts)
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
        self, services: Services, endpoint: Endpoint, body: bytes, prompt: Rendered, place: int, turns: asyncio.Semaphore
    ) -> None:
        self._turns = turns
        self._n = prompt.n
        self._shift = place * self._n
        self._generation = Generation(services.worker, services.metrics, prompt)
        self._derendering = Derendering(services.derender, endpoint, body, prompt)
        self.prompt_tokens = len(prompt.token_ids)
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


def _id(prompts: Sequence[Rendered]) -> str:
    """One id for the whole answer: several prompts have ids `<id>-<place>`."""
    first = prompts[0].id
    return first.removesuffix("-0") if len(prompts) > 1 else first


def _size(chunk: JsonObject) -> int:
    """Bytes of the one thing in a chunk that may be long."""
    return 8 * len(chunk.get("prompt_token_ids") or ())


def error_event(error: TandemError) -> bytes:
    """How a stream that has begun tells its client that it failed: OpenAI's clients raise on it."""
    return encode(ErrorResponse(error=error.info).wire())
