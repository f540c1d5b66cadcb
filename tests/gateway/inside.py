"""A gateway's exchange over services inside this process, no port between them: as real as the live ones, and quick enough to be
asked a thousand times. Render answers a given prompt, workers play given ids and break where they are told, derender is the
service's own functions."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from derender_service.batch import derender_chat
from derender_service.derenderer import Derenderer
from derender_service.stream import derender_chat_chunk
from gateway.asked import CHAT, Peek
from gateway.metrics import GatewayMetrics
from gateway.pipeline import Exchange, Services
from gateway.replicas import Replicas
from gateway.upstreams import Upstream
from protocol.derender import DerenderChatRequest, DerenderChatStreamRequest
from protocol.errors import ErrorResponse, TandemError
from protocol.events import DoneChoice, DoneEvent, OutputEvent, TokenChoice, TokenEvent, encode_event
from protocol.generate import FinishReason, GenerateChoice, GenerateResponse, Timings
from protocol.logprobs import TokenLogprob, TokenLogprobEntry, TokenLogprobs
from protocol.sse import DONE, SSEDecoder, encode
from protocol.usage import Usage
from service_kit.metrics import Metrics

JsonObject = dict[str, Any]
CREATED = 1_764_400_000
TIMINGS = Timings(queue_ms=0, ttft_ms=1, execution_ms=2, total_ms=2, tokens_per_s=3)
Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class Output:
    """A choice: its ids, how it ends, and how many ids each of its events has, over and over. A `stop` is by the last id."""

    token_ids: list[int]
    finish: str = "stop"
    sizes: Sequence[int] = (1,)

    def events(self, request: JsonObject, index: int) -> list[OutputEvent]:
        at = len(request.get("output_token_ids") or ())
        end = len(self.token_ids) - (self.finish == "stop")
        events: list[OutputEvent] = []
        while at < end:
            ids = self.token_ids[at : min(end, at + self.sizes[len(events) % len(self.sizes)])]
            token = TokenChoice(index=index, token_index=at, token_ids=ids, logprobs=_scores(request, ids))
            events.append(TokenEvent(request_id=request["request_id"], created=CREATED, choices=[token]))
            at += len(ids)
        last = self.token_ids[at:]
        done = DoneChoice(
            index=index,
            token_index=at,
            token_ids=last,
            logprobs=_scores(request, last) if last else None,
            output_tokens=len(self.token_ids),
            finish_reason=FinishReason(self.finish),
        )
        return [*events, DoneEvent(request_id=request["request_id"], created=CREATED, choices=[done])]


def _scores(request: JsonObject, ids: Sequence[int]) -> TokenLogprobs | None:
    if request["sampling_params"].get("logprobs") is None:
        return None
    entries = [TokenLogprobEntry(token_id=i, logprob=-0.5, rank=1, top_logprobs=[_top(i)]) for i in ids]
    return TokenLogprobs(content=entries)


def _top(token_id: int) -> TokenLogprob:
    return TokenLogprob(token_id=token_id, logprob=-0.5, rank=1)


class _Breaking(httpx.AsyncByteStream):
    """Pieces one by one, then a broken connection if told."""

    def __init__(self, pieces: Sequence[bytes], breaks: bool) -> None:
        self._pieces, self._breaks = pieces, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
            await asyncio.sleep(0)
        if self._breaks:
            raise httpx.ReadError("the worker is gone")


@dataclass
class Inside:
    """`breaks`: after how many events each attempt of the worker breaks; attempts beyond them go well. `failing`: numbers of
    derender calls whose replica dies under them. What was asked is kept: workers' requests, and the derender replica of each call.
    """

    derenderer: Derenderer = field(repr=False)
    prompt: Sequence[int]
    outputs: Sequence[Output]
    replicas: int = 1
    breaks: Sequence[int] = ()
    failing: frozenset[int] = frozenset()
    generated: list[JsonObject] = field(default_factory=list)
    derendered: list[str] = field(default_factory=list)

    def exchange(self, body: JsonObject, *, as_stream: bool) -> Exchange:
        """A request; `as_stream` reads the output as it grows, whatever the request says of stop strings."""
        peek = Peek.model_validate({**body, "stop": ["as a stream"] if as_stream else None})
        own = GatewayMetrics(Metrics("gateway"))

        def upstream(kind: str, handler: Handler, count: int = 1) -> Upstream:
            client = httpx.AsyncClient(transport=httpx.MockTransport(handler))
            return Upstream(kind, client, Replicas([f"http://127.0.0.{number}" for number in range(1, count + 1)]), own)

        services = Services(
            upstream("render", lambda _: self._rendered(body)),
            upstream("worker", self._generated, 2),
            upstream("derender", self._derendered, self.replicas),
            own,
        )
        exchange = Exchange(services, CHAT, json.dumps(body).encode(), peek)
        exchange._created = CREATED
        return exchange

    def answer(self, body: JsonObject, *, as_stream: bool) -> bytes:
        """The whole answer's bytes, put together of chunks or by derender at once."""
        return asyncio.run(self.exchange(body, as_stream=as_stream).answer())

    def chunks(self, body: JsonObject) -> list[JsonObject]:
        """What a streaming client gets; the end is checked, and left out."""

        async def all_of_them() -> bytes:
            return b"".join([event async for event in self.exchange(body, as_stream=True).events()])

        *chunks, end = [event.data for event in SSEDecoder().feed(asyncio.run(all_of_them()))]
        assert end == DONE
        return [json.loads(chunk) for chunk in chunks]

    def _rendered(self, body: JsonObject) -> httpx.Response:
        wanted = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
        params = {"n": len(self.outputs), **({} if wanted is None else {"logprobs": wanted})}
        return httpx.Response(
            200, json={"request_id": "chatcmpl-1", "token_ids": list(self.prompt), "sampling_params": params, "model": "m"}
        )

    def _generated(self, asked: httpx.Request) -> httpx.Response:
        request = json.loads(asked.content)
        attempt = len(self.generated)
        self.generated.append(request)
        total = sum(len(output.token_ids) for output in self.outputs)
        usage = Usage.of(len(self.prompt), total)
        if not request["stream"]:
            choices = [
                GenerateChoice(
                    index=index,
                    token_ids=output.token_ids,
                    finish_reason=FinishReason(output.finish),
                    logprobs=_scores(request, output.token_ids),
                )
                for index, output in enumerate(self.outputs)
            ]
            answer = GenerateResponse(
                request_id=request["request_id"], created=CREATED, choices=choices, usage=usage, timings=TIMINGS
            )
            return httpx.Response(200, content=answer.wire())
        events = interleaved([output.events(request, index) for index, output in enumerate(self.outputs)])
        last = events[-1]
        assert isinstance(last, DoneEvent)
        events[-1] = last.model_copy(update={"usage": usage, "timings": TIMINGS})
        pieces = [encode_event(event) for event in events]
        if attempt < len(self.breaks):
            return httpx.Response(200, stream=_Breaking(pieces[: self.breaks[attempt]], breaks=True))
        return httpx.Response(200, stream=_Breaking([*pieces, encode(DONE)], breaks=False))

    def _derendered(self, asked: httpx.Request) -> httpx.Response:
        number = len(self.derendered)
        self.derendered.append(asked.url.host)
        if number in self.failing:
            raise httpx.ReadError("the derender replica is gone")
        try:
            if json.loads(asked.content).get("stream"):
                answer = derender_chat_chunk(self.derenderer, DerenderChatStreamRequest.model_validate_json(asked.content)).wire()
            else:
                answer = derender_chat(self.derenderer, DerenderChatRequest.model_validate_json(asked.content)).wire()
        except TandemError as error:
            return httpx.Response(error.status, content=ErrorResponse(error=error.info).wire())
        return httpx.Response(200, content=answer)


def interleaved(streams: Sequence[Sequence[OutputEvent]]) -> list[OutputEvent]:
    """An event of each in turn."""
    longest = max(map(len, streams))
    return [stream[place] for place in range(longest) for stream in streams if place < len(stream)]
