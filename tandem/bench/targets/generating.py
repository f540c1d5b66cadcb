"""A generate stream from its first byte to its connection's end, checked on the way."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from protocol.base import JsonObject
from protocol.errors import ErrorInfo
from protocol.event_stream import EventStream, StreamProtocolError
from protocol.events import DoneEvent, ErrorEvent, GenerateEvent, OutputEvent
from protocol.sse import SSEDecoder, SSEError
from tandem.bench.errors import RequestFailed, broken, refused
from tandem.bench.seen import Answer
from tandem.bench.targets.caller import Caller

GENERATE = "/inference/v1/generate"


def failed(error: ErrorInfo) -> RequestFailed:
    """An error that a server told of in its stream."""
    return refused(" ".join(error.message.split()), error.code if isinstance(error.code, int) else None)


class Generating:
    """One request to a worker. `events` are to be read to their end: what follows the last terminal breaks the protocol too."""

    def __init__(self, worker: Caller, body: JsonObject, *, hashed: bool) -> None:
        self._worker, self._hashed = worker, hashed
        self._body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        self._ids: list[int] = []
        self._ended: float | None = None
        self._last: DoneEvent | None = None

    async def events(self) -> AsyncGenerator[tuple[float, OutputEvent], None]:
        """Events with the moment they came. Raises `RequestFailed`."""
        stream, decoder = EventStream(request_id="unknown"), SSEDecoder()
        async with aclosing(self._worker.stream(GENERATE, self._body)) as pieces:
            try:
                async for at, piece in pieces:
                    for sent in decoder.feed(piece):
                        for event in self._taken(at, stream, stream.feed(sent.data)):
                            yield at, event
                for event in self._taken(self._worker.clock(), stream, stream.close()):
                    yield self._worker.clock(), event
            except SSEError as error:
                raise broken(str(error)) from error
            except StreamProtocolError as error:
                # Without the event itself, so that failures of one kind have one message.
                raise broken(f"{error.what} (event {error.where})") from error

    def answer(self, *, ended: float | None = None) -> Answer:
        """What all events told. `ended`: when, if not with the last of them."""
        assert self._last is not None, "the events have been read to their end"
        assert self._ended is not None
        return Answer(
            ended=self._ended if ended is None else ended,
            finish_reason=self._last.choices[0].finish_reason,
            request_id=self._last.request_id,
            prompt_tokens=len(self._body["token_ids"]),
            prompt_source="ids",
            output_tokens=len(self._ids),
            output_source="ids",
            timings=self._last.timings,
            output_sha256=sha256_of_ids(self._ids) if self._hashed else None,
            hashed="ids" if self._hashed else None,
        )

    def _taken(self, at: float, stream: EventStream, events: Sequence[GenerateEvent]) -> list[OutputEvent]:
        outputs: list[OutputEvent] = []
        for event in events:
            if isinstance(event, ErrorEvent):
                raise failed(event.error)
            self._ids += event.choices[0].token_ids
            if isinstance(event, DoneEvent):
                self._last = event
            outputs.append(event)
        if stream.ended and self._ended is None:
            self._ended = at
        return outputs


def sha256_of_ids(ids: Sequence[int]) -> str:
    """Of the ids in decimal, with commas between: `printf 504,3575,2 | sha256sum` gives the same."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
