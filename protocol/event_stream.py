"""One generate stream, checked as it goes: the rules of `events` that no single event can show."""

from protocol.events import DoneEvent, ErrorEvent, GenerateEvent

_ROUNDING_MS = 0.01


class StreamProtocolError(ValueError):
    """A stream that breaks the protocol: `what` is wrong, and `event`, where there is one, shows it."""

    def __init__(self, what: str, event: GenerateEvent | None = None) -> None:
        super().__init__(what if event is None else f"{what}: {event.wire().decode()[:300]}")
        self.what, self.event = what, event


class EventStream:
    """Checks the events of one request: `n` choices, each of which had `resumed` ids before.

    Within a choice ids are contiguous and `output_tokens` counts them; each choice ends once; the request's usage and timings,
    where they are told, add up; after the last terminal nothing comes.
    """

    def __init__(self, *, n: int = 1, resumed: int = 0) -> None:
        self._lengths = dict.fromkeys(range(n), resumed)
        self._open = set(self._lengths)
        self._failed = False

    @property
    def ended(self) -> bool:
        """Whether every choice has its terminal, or the request has failed."""
        return self._failed or not self._open

    def check(self, event: GenerateEvent) -> None:
        """Raises `StreamProtocolError` for an event that may not come here."""
        if self.ended:
            raise StreamProtocolError("an event after the stream's end", event)
        if isinstance(event, ErrorEvent):
            self._failed = True
            return
        (choice,) = event.choices
        if choice.index not in self._open:
            known = choice.index in self._lengths
            raise StreamProtocolError("an event of a choice that has ended" if known else "a choice that was not asked for", event)
        expected = self._lengths[choice.index]
        if choice.token_index != expected:
            raise StreamProtocolError(f"token_index is {choice.token_index}, {expected} ids have come", event)
        self._lengths[choice.index] += len(choice.token_ids)
        if isinstance(event, DoneEvent):
            self._check_end(event)

    def finish(self) -> None:
        """To be called when the stream has closed. Raises `StreamProtocolError` when a terminal is missing."""
        if not self.ended:
            raise StreamProtocolError("the stream closed without a terminal event")

    def _check_end(self, event: DoneEvent) -> None:
        (choice,) = event.choices
        self._open.discard(choice.index)
        if choice.output_tokens != self._lengths[choice.index]:
            raise StreamProtocolError(
                f"output_tokens is {choice.output_tokens}, {self._lengths[choice.index]} ids have come", event
            )
        if event.usage is not None and not self._open:
            total = sum(self._lengths.values())
            if event.usage.completion_tokens not in (None, total):
                raise StreamProtocolError(f"usage counts {event.usage.completion_tokens} output tokens, {total} have come", event)
        timings = event.timings
        if timings is not None and abs(timings.queue_ms + timings.execution_ms - timings.total_ms) > _ROUNDING_MS:
            raise StreamProtocolError("the timings do not add up", event)
