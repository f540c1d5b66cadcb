"""Tool calls put together from their deltas."""

from protocol.event_stream import StreamProtocolError
from protocol.tools import ToolCallDelta
from tandem.events import StreamEvent, ToolCall, ToolCallArguments, ToolCallEnd, ToolCallStart


class ToolCalls:
    """One call at a time, in the order of their indices: where the next begins, the one before has ended."""

    def __init__(self) -> None:
        self._ended: list[ToolCall] = []
        self._open: ToolCallStart | None = None
        self._arguments: list[str] = []

    @property
    def made(self) -> list[ToolCall]:
        """The last one as far as it has come."""
        return [*self._ended, self._current(self._open)] if self._open else list(self._ended)

    def take(self, delta: ToolCallDelta) -> list[StreamEvent]:
        """Raises `StreamProtocolError` for arguments of a call that has not begun, or that has ended."""
        events: list[StreamEvent] = []
        function = delta.function
        if self._open is None or delta.index != self._open.index:
            known = len(self._ended) + (self._open is not None)
            if delta.index != known or function is None or not function.name:
                raise StreamProtocolError(f"a part of tool call {delta.index}, which is not under way", known)
            events += self.end()
            self._open = ToolCallStart(delta.index, delta.id or "", function.name)
            events.append(self._open)
        if function is not None and function.arguments:
            self._arguments.append(function.arguments)
            events.append(ToolCallArguments(delta.index, function.arguments))
        return events

    def end(self) -> list[StreamEvent]:
        """Nothing more comes of the call that is under way."""
        if self._open is None:
            return []
        call = self._current(self._open)
        self._ended.append(call)
        self._open = None
        self._arguments.clear()
        return [ToolCallEnd(call)]

    def _current(self, begun: ToolCallStart) -> ToolCall:
        return ToolCall(begun.index, begun.id, begun.name, "".join(self._arguments))
