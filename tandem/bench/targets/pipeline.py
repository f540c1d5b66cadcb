"""The per-chunk pipeline: one call to render, a worker's stream, one call to derender for each of its events."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from protocol.base import Extensible, JsonObject, TokenId
from protocol.events import OutputEvent
from protocol.generate import NOT_THE_WORKERS
from tandem.bench.errors import broken
from tandem.bench.requests import Request
from tandem.bench.seen import Arrival, Seen, Stage
from tandem.bench.targets import Server, Target
from tandem.bench.targets.caller import Caller, first_model
from tandem.bench.targets.generating import GENERATE, Generating

T = TypeVar("T", bound=Extensible)

RENDER = "/v1/chat/completions/render"
DERENDER = "/v1/chat/completions/derender"


class _Rendered(Extensible):
    """Render's answer. Another system's has no `parse_context`: its derender is given the request instead."""

    token_ids: list[TokenId]
    parse_context: JsonObject | None = None


class _Derendered(Extensible):
    chunk: JsonObject
    stream_state: JsonObject


@dataclass
class PipelineTarget(Target):
    """Output has arrived when derender has answered for it, whether or not text of it shows yet."""

    render: Caller
    worker: Caller
    derender: Caller
    model: str | None = None

    async def probe(self) -> Server:
        await self.render.must_serve(RENDER)
        await self.worker.must_serve(GENERATE)
        await self.derender.must_serve(DERENDER)
        self.model = self.model or first_model(self.render, await self.render.models())
        callers = {"render": self.render, "worker": self.worker, "derender": self.derender}
        return Server({name: caller.address for name, caller in callers.items()}, self.model)

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        chat = {"model": self.model, **request.body, "stream": True}
        begun = time.perf_counter()
        body = await self.render.post(RENDER, chat)
        yield Stage("render", time.perf_counter() - begun)
        prompt = _read(_Rendered, body, "render")
        own = {name: value for name, value in prompt.model_dump().items() if name not in NOT_THE_WORKERS}
        generating = Generating(self.worker, own, hashed=request.greedy)
        context = {"chat_request": chat} if prompt.parse_context is None else {"parse_context": prompt.parse_context}
        turn: JsonObject = {"model": self.model, "stream": True, "prompt_token_ids": prompt.token_ids, **context}
        ended = self.derender.clock()
        async with aclosing(generating.events()) as events:
            async for _, event in events:
                begun = time.perf_counter()
                state = await self._derendered(turn, event)
                yield Stage("derender", time.perf_counter() - begun)
                turn = {"model": self.model, "stream": True, "stream_state": state}
                ended = self.derender.clock()
                if count := len(event.choices[0].token_ids):
                    yield Arrival(ended, count)
        yield generating.answer(ended=ended)

    async def _derendered(self, turn: JsonObject, event: OutputEvent) -> JsonObject:
        body = await self.derender.post(DERENDER, {**turn, "generate_chunk": event.model_dump(mode="json")})
        return _read(_Derendered, body, "derender").stream_state


def _read(shape: type[T], body: bytes, service: str) -> T:
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise broken(f"{service} answered something else than expected: {body[:200].decode('utf-8', 'replace')}") from error
