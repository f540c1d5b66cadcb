"""One generate stream, read and checked as it goes: the rules of `events` that no single event can show.

Whoever reads a worker's stream reads it through this: the gateway, the client, the bench. vLLM's streams are taken for what they
would be as ours (`normalise`).
"""

from protocol.base import JsonObject
from protocol.events import DoneEvent, ErrorEvent, GenerateEvent
from protocol.normalise import StreamError, StreamNormaliser
from protocol.payload import read_object
from protocol.sse import DONE

_ROUNDING_MS = 0.01


class StreamProtocolError(ValueError):
    """A stream that breaks the protocol: `what` is wrong, `where` in the stream (which event, counted from 0).
    `event` shows it, where it could be read."""

    def __init__(self, what: str, where: int, event: GenerateEvent | None = None) -> None:
        shown = "" if event is None else f": {event.wire().decode()[:300]}"
        super().__init__(f"{what} (event {where}){shown}")
        self.what, self.where, self.event = what, where, event


class EventStream:
    """The stream of one request: `n` choices, each of which had `resumed` ids before.

    Every event is known and closed; within a choice ids are contiguous and `output_tokens` counts them; each choice ends once; the
    request's usage and timings add up, and ours has both; after the last terminal nothing comes but `[DONE]`.

    `request_id` and `created` stand in where a foreign stream tells none. `typed` is false as soon as something foreign has come.
    """

    def __init__(self, *, n: int = 1, resumed: int = 0, request_id: str = "", created: int = 0) -> None:
        self._lengths = dict.fromkeys(range(n), resumed)
        self._open = set(self._lengths)
        self._failed = False
        self._closed = False
        self._count = 0
        self._request_id: str | None = None
        self._normaliser = StreamNormaliser(request_id, created, n=n, resumed=resumed)
        self.typed = True

    @property
    def ended(self) -> bool:
        """Whether every choice has its terminal, or the request has failed."""
        return self._failed or not self._open

    @property
    def output_tokens(self) -> int:
        """Ids of all choices, those from before included."""
        return sum(self._lengths.values())

    def feed(self, data: str) -> list[GenerateEvent]:
        """The events of one payload, `[DONE]` included, checked. Raises `StreamProtocolError`."""
        if self._closed:
            raise self._broken("something follows [DONE]")
        if data == DONE:
            self._closed = True
            return self._checked(self._normaliser.end())
        payload = self._object(data)
        self.typed = self.typed and "type" in payload
        try:
            return self._checked(self._normaliser.feed(payload))
        except StreamError as error:
            raise self._broken(str(error)) from error

    def close(self) -> list[GenerateEvent]:
        """To be called when the connection has ended: events that waited for it. Raises `StreamProtocolError` when a terminal is
        missing."""
        events = self._checked(self._normaliser.end())
        if not self.ended:
            raise self._broken("the stream closed without a terminal event")
        return events

    def check(self, event: GenerateEvent) -> None:
        """An event that was read elsewhere. Raises `StreamProtocolError` where it may not come here."""
        if self.ended:
            raise self._broken("an event after the stream's end", event)
        if event.request_id != (self._request_id or event.request_id):
            raise self._broken(f"an event of another request than {self._request_id}", event)
        self._request_id = event.request_id
        if isinstance(event, ErrorEvent):
            self._failed = True
        else:
            (choice,) = event.choices
            if choice.index not in self._open:
                known = choice.index in self._lengths
                raise self._broken("an event of a choice that has ended" if known else "a choice that was not asked for", event)
            expected = self._lengths[choice.index]
            if choice.token_index != expected:
                raise self._broken(f"token_index is {choice.token_index}, {expected} ids have come", event)
            self._lengths[choice.index] += len(choice.token_ids)
            if isinstance(event, DoneEvent):
                self._check_end(event)
        self._count += 1

    def _check_end(self, event: DoneEvent) -> None:
        (choice,) = event.choices
        self._open.discard(choice.index)
        if choice.output_tokens != self._lengths[choice.index]:
            raise self._broken(f"output_tokens is {choice.output_tokens}, {self._lengths[choice.index]} ids have come", event)
        if not self._open:
            self._check_usage(event)
            self._check_timings(event)

    def _check_usage(self, event: DoneEvent) -> None:
        usage = event.usage
        if usage is None:
            if self.typed:
                raise self._broken("the last done has no usage", event)
            return
        if usage.completion_tokens not in (None, self.output_tokens):
            raise self._broken(f"usage counts {usage.completion_tokens} output tokens, {self.output_tokens} have come", event)
        if usage.total_tokens != usage.prompt_tokens + (usage.completion_tokens or 0):
            raise self._broken("the usage does not add up", event)

    def _check_timings(self, event: DoneEvent) -> None:
        timings = event.timings
        if timings is None:
            if self.typed:
                raise self._broken("the last done has no timings", event)
            return
        # (So written, a number that is none is found too.)
        if not abs(timings.queue_ms + timings.execution_ms - timings.total_ms) <= _ROUNDING_MS:
            raise self._broken("the timings do not add up", event)
        if timings.ttft_ms is not None and not timings.ttft_ms <= timings.total_ms + _ROUNDING_MS:
            raise self._broken("the first token came after the end", event)

    def _checked(self, events: list[GenerateEvent]) -> list[GenerateEvent]:
        for event in events:
            self.check(event)
        return events

    def _object(self, data: str) -> JsonObject:
        try:
            return read_object(data)
        except ValueError as error:
            raise self._broken(str(error)) from error

    def _broken(self, what: str, event: GenerateEvent | None = None) -> StreamProtocolError:
        return StreamProtocolError(what, self._count, event)
