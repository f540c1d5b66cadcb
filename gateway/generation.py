"""The events of one generate request, whichever worker they come from.

A worker that breaks off is replaced by the next: the ids that have come are sent along as `output_token_ids`, and the generation
goes on after them. With position-keyed randomness (one seed, one choice, one position: one token) it is the continuation that the
first worker would have given.
"""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from gateway.merge import ready
from gateway.metrics import GatewayMetrics
from gateway.upstreams import Unreachable, Upstream
from protocol.errors import UpstreamError
from protocol.events import DoneEvent, ErrorEvent, GenerateEvent, TokenEvent
from protocol.normalise import StreamError, StreamNormaliser
from protocol.sse import DONE, SSEDecoder, SSEError

JsonObject = dict[str, Any]

GENERATE = "/inference/v1/generate"
MAX_RESUMES = 3
AHEAD = 64
"""Pieces of a worker's stream that may wait while earlier ones are derendered: under load they are derendered together."""


class BrokenStream(UpstreamError):
    """A generate stream that ended without its terminals."""


class Generation:
    """One generate request as it runs. `prompt_tokens` is known from the request, everything else from the events."""

    def __init__(self, worker: Upstream, metrics: GatewayMetrics, request: JsonObject) -> None:
        self._worker, self._metrics = worker, metrics
        self._request = {**request, "stream": True, "stream_options": {"include_usage": True}}
        self._n: int = request["sampling_params"].get("n") or 1
        self._ids: list[int] = []
        self._done: set[int] = set()
        self._seed: int | None = None
        self._resumable = self._n == 1

    async def batches(self) -> AsyncGenerator[list[GenerateEvent], None]:
        """Events in the order they came, those that came together as one batch, until every choice has ended.

        Raises `RelayedError` or `Unreachable` before the first event, `BrokenStream` or `Unreachable` later; an `error` event is
        the last one.
        """
        for attempt in range(MAX_RESUMES + 1):
            try:
                async with aclosing(self._attempt()) as attempted:
                    async for batch in attempted:
                        yield batch
                        if len(self._done) == self._n or isinstance(batch[-1], ErrorEvent):
                            return
                raise BrokenStream("the worker's stream ended without a terminal event")
            except (Unreachable, BrokenStream):
                if attempt == MAX_RESUMES or not self._resumable or not self._ids:
                    raise
                self._metrics.resumed.inc()

    async def _attempt(self) -> AsyncGenerator[list[GenerateEvent], None]:
        normaliser = StreamNormaliser(self._request["request_id"], int(time.time()), n=self._n, resumed=len(self._ids))
        decoder = SSEDecoder()
        async with await self._worker.stream(GENERATE, self._body()) as live, aclosing(ready(live.chunks(), AHEAD)) as batches:
            async for chunks in batches:
                batch: list[GenerateEvent] = []
                ended = False
                try:
                    for event in decoder.feed(b"".join(chunks)):
                        ended = ended or event.data == DONE
                        batch += normaliser.end() if event.data == DONE else normaliser.feed(self._payload(event.data))
                except (SSEError, StreamError) as error:
                    raise UpstreamError(f"the worker broke the protocol: {error}") from error
                for each in batch:
                    self._note(each)
                if batch:
                    yield batch
                if ended:
                    return
            if rest := normaliser.end():
                for each in rest:
                    self._note(each)
                yield rest

    def _payload(self, data: str) -> JsonObject:
        try:
            payload = json.loads(data)
        except ValueError as error:
            raise StreamError(f"not JSON: {data[:100]!r}") from error
        if not isinstance(payload, dict):
            raise StreamError(f"not an object: {data[:100]!r}")
        # Only our own workers, whose events are typed, know how to go on after output_token_ids.
        self._resumable = self._resumable and "type" in payload
        return payload

    def _note(self, event: GenerateEvent) -> None:
        if isinstance(event, ErrorEvent):
            return
        if event.seed is not None:
            self._seed = event.seed
        (choice,) = event.choices
        if isinstance(event, TokenEvent):
            if self._resumable:
                self._ids += choice.token_ids
        elif isinstance(event, DoneEvent):
            self._done.add(choice.index)

    def _body(self) -> bytes:
        request = dict(self._request)
        if self._ids:
            request["output_token_ids"] = [*(request.get("output_token_ids") or []), *self._ids]
            if self._seed is not None:
                request["sampling_params"] = {**request["sampling_params"], "seed": self._seed}
        return json.dumps(request, separators=(",", ":")).encode()
