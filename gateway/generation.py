"""The events of one generate request, whichever worker they come from.

A worker that breaks off or shuts down is replaced by the next: the ids that have come are sent along as `output_token_ids`, and the
generation goes on after them. With position-keyed randomness (one seed, one choice, one position: one token) it is the continuation
that the first worker would have given. As long as nothing has come, any request may begin anew elsewhere.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from gateway.answers import Rendered, failure, written
from gateway.merge import ready
from gateway.metrics import GatewayMetrics
from gateway.upstreams import Unreachable, Upstream
from protocol.errors import TandemError, UpstreamError
from protocol.event_stream import EventStream, StreamProtocolError
from protocol.events import ErrorEvent, GenerateEvent, OutputEvent, TokenEvent
from protocol.sse import SSEDecoder, SSEError
from service_kit.offload import by_length

JsonObject = dict[str, Any]

GENERATE = "/inference/v1/generate"
MAX_RESUMES = 3
AHEAD = 64
"""Pieces of a worker's stream that may wait while earlier ones are derendered: under load they are derendered together."""


class BrokenOff(UpstreamError):
    """A generate stream that another worker may go on with: it ended without its terminals, or its worker is shutting down."""

    def __init__(self, cause: TandemError) -> None:
        super().__init__(cause.message)
        self.cause = cause


class Generation:
    """One generate request as it runs."""

    def __init__(self, worker: Upstream, metrics: GatewayMetrics, prompt: Rendered) -> None:
        self._worker, self._metrics = worker, metrics
        self._request = {**prompt.request, "stream": True, "stream_options": {"include_usage": True}}
        self._size, self._n = prompt.size, prompt.n
        self._resumed: list[int] = list(prompt.request.get("output_token_ids") or [])
        self._ids: list[int] = []
        self._seed: int | None = None
        self._begun = False
        self._typed = True

    async def batches(self) -> AsyncGenerator[list[OutputEvent], None]:
        """Token and done events in the order they came, those that came together as one batch, until every choice has ended.

        Raises the error that the worker answered or sent, `Unreachable` where there is none, `UpstreamError` for a stream that
        breaks the protocol.
        """
        for attempt in range(MAX_RESUMES + 1):
            try:
                async with aclosing(self._attempt()) as attempted:
                    async for batch in attempted:
                        self._begun = True
                        yield batch
                return
            except (Unreachable, BrokenOff) as error:
                if attempt == MAX_RESUMES or not self._may_go_on():
                    raise error.cause if isinstance(error, BrokenOff) else error from None
                self._metrics.resumed.inc()

    def _may_go_on(self) -> bool:
        """Only our own workers, whose events are typed, know how to go on after `output_token_ids`, and for one choice only."""
        return not self._begun or (self._typed and self._n == 1)

    async def _attempt(self) -> AsyncGenerator[list[OutputEvent], None]:
        length = len(self._resumed) + len(self._ids)
        stream = EventStream(n=self._n, resumed=length, request_id=self._request["request_id"], created=int(time.time()))
        decoder = SSEDecoder()

        def read(data: bytes) -> list[GenerateEvent]:
            """What a worker says behind its end is not waited for, so it is not looked at where it has come already."""
            return [event for sent in decoder.feed(data) if not stream.ended for event in stream.feed(sent.data)]

        body = await by_length(self._size, self._body)
        async with await self._worker.stream(GENERATE, body) as live, aclosing(ready(live.chunks(), AHEAD)) as batches:
            async for chunks in batches:
                data = b"".join(chunks)
                try:
                    events = await by_length(len(data), partial(read, data))
                except (SSEError, StreamProtocolError) as error:
                    raise UpstreamError(f"the worker broke the protocol: {error}") from error
                self._typed = self._typed and stream.typed
                if batch := self._taken(events):
                    yield batch
                if events and isinstance(events[-1], ErrorEvent):
                    problem = failure(events[-1].error)
                    if problem.status == 503:
                        live.replica.rest()
                        raise BrokenOff(problem)
                    raise problem
                if stream.ended:
                    return
            try:
                rest = self._taken(stream.close())
            except StreamProtocolError as error:
                raise BrokenOff(UpstreamError("the worker's stream ended without a terminal event")) from error
            yield rest

    def _taken(self, events: list[GenerateEvent]) -> list[OutputEvent]:
        """Those that tell of output; a stream that goes on elsewhere begins behind them."""
        outputs = [event for event in events if not isinstance(event, ErrorEvent)]
        for event in outputs:
            if event.seed is not None:
                self._seed = event.seed
            if isinstance(event, TokenEvent) and self._n == 1:
                self._ids += event.choices[0].token_ids
        return outputs

    def _body(self) -> bytes:
        request = dict(self._request)
        if self._ids:
            request["output_token_ids"] = [*self._resumed, *self._ids]
        if self._seed is not None:
            request["sampling_params"] = {**request["sampling_params"], "seed": self._seed}
        return written(request)
