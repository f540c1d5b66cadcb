"""`stream`: one answer, as segments of its text or as events, on the caller's own task.

There is no task and no queue behind it: text is read from the connection when the caller asks for more, so a slow reader slows the
server, and leaving, by whatever way, closes the connection, which ends the generation.
"""

import asyncio
import inspect
import logging
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal

from protocol.generate import Timings
from protocol.usage import Usage
from tandem.answer import Piece
from tandem.checks import Check, CheckFailure, FinalCheck, failures, verdicts
from tandem.chunking import Chunker, ChunkingStrategy, strategy
from tandem.errors import AlreadyConsumed
from tandem.events import (
    CheckEvent,
    CompletedEvent,
    DoneEvent,
    ErrorEvent,
    ReasoningEvent,
    StreamEvent,
    TextEvent,
    ToolCall,
)
from tandem.targets import Gateway, Target
from tandem.tool_calls import ToolCalls
from tandem.transcript import Transcript

log = logging.getLogger("tandem.client")

Chunking = Literal["sentence", "word", "paragraph"] | ChunkingStrategy | None
Observer = Callable[[StreamEvent], Awaitable[None] | None]


def stream(
    target: str | Target,
    request: Mapping[str, Any],
    chunking: Chunking = None,
    checks: Sequence[Check] = (),
    observers: Sequence[Observer] = (),
    *,
    final_checks: Sequence[FinalCheck] = (),
) -> "Streamer":
    """The answer to an OpenAI request (a chat's `messages` or a completion's `prompt`), to be iterated. Nothing is sent before.

    `target` is a gateway's address, a `Gateway` or a `Pipeline`. Text comes in the segments that `chunking` makes (None: as it
    arrives), each after its `checks` have let it pass; `final_checks` look at the whole. `observers` are told every event, whatever
    the caller iterates. Raises `ValueError` for a chunking that does not exist.
    """
    place = Gateway(target) if isinstance(target, str) else target
    return Streamer(place, request, chunking, checks, observers, final_checks=final_checks)


class Streamer:
    """One answer. `async for segment in streamer` gives its text, `streamer.events()` everything; one of them, once.

    Use it in `async with`: whichever way that is left, the generation is ended and the connection given back. Iterating raises
    `StreamError`s for what the server or the network did, `StreamProtocolError` for a server that breaks the protocol, and what a
    check or the chunking raises. A check that says `fail` raises nothing: the iteration ends before that segment.

    Attributes, at any time:

    - `full_text`: all text once the answer has ended by itself; else the text through the last segment delivered.
    - `reasoning`, `refusal`, `tool_calls`: as far as they have come.
    - `usage`, `finish_reason`, `timings`, `stream_id`: as the server told them; None before, or where it does not.
    - `completed_normally`: the answer has ended by itself and was delivered whole.
    - `failed_early`, `failure_reason`: a check, the server, the connection or the caller's own code failed before that; and how.
      Both are unset where the caller just left.
    - `check_failures`: all checks that said `fail`.
    """

    def __init__(
        self,
        target: Target,
        request: Mapping[str, Any],
        chunking: Chunking = None,
        checks: Sequence[Check] = (),
        observers: Sequence[Observer] = (),
        *,
        final_checks: Sequence[FinalCheck] = (),
    ) -> None:
        self._target, self._request = target, request
        self._chunker = None if chunking is None else Chunker(strategy(chunking))
        self._checks, self._final_checks, self._observers = tuple(checks), tuple(final_checks), tuple(observers)
        self._transcript = Transcript()
        self._calls = ToolCalls()
        self._reasoning: list[str] = []
        self._entered = False
        # Who iterates without `async with` may drop the iterator: then nothing else must keep the generator.
        self._kept: AsyncGenerator[StreamEvent, None] | None = None
        self._begun: Callable[[], AsyncGenerator[StreamEvent, None] | None] | None = None
        self._completed = False
        self.stream_id: str | None = None
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.finish_reason: str | None = None
        self.refusal = ""
        self.completed_normally = False
        self.failure_reason: str | None = None
        self.check_failures: list[CheckFailure] = []

    # ---- what is known

    @property
    def full_text(self) -> str:
        return self._transcript.whole if self.completed_normally else self._transcript.delivered

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self._calls.made

    @property
    def failed_early(self) -> bool:
        return self.failure_reason is not None and not self.completed_normally

    # ---- iterating

    def __aiter__(self) -> AsyncIterator[str]:
        return _Texts(self._begin())

    def events(self) -> AsyncIterator[StreamEvent]:
        """Everything, in the order in which it comes; `CompletedEvent` last."""
        return self._begin()

    async def __aenter__(self) -> "Streamer":
        self._entered = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not self._completed:
            self._fail(error)
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the generation if it still runs. Idempotent."""
        running = self._begun() if self._begun is not None else None
        if running is not None:
            await running.aclose()
        await self._complete()

    def _begin(self) -> AsyncGenerator[StreamEvent, None]:
        if self._begun is not None or self._completed:
            raise AlreadyConsumed("this stream has been iterated already, or closed; it comes once, as text or as events")
        running = self._run()
        self._begun = weakref.ref(running)
        if self._entered:
            self._kept = running
        return running

    # ---- the one generator

    async def _run(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            async with aclosing(self._answer()) as events:
                async for event in events:
                    await self._tell(event)
                    if isinstance(event, TextEvent):
                        self._transcript.deliver(event.text)
                    yield event
        except Exception as error:
            self._fail(error)
            event = ErrorEvent(error)
            await self._tell(event)
            yield event
            yield await self._complete()
            raise
        except asyncio.CancelledError as error:
            self._fail(error)
            raise
        else:
            yield await self._complete()
        finally:
            # Left before its end, it is complete all the same; that is once, whoever comes first.
            await self._complete()

    async def _answer(self) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(self._target.pieces(self._request)) as pieces:
            async for piece in pieces:
                self._note(piece)
                if piece.reasoning:
                    self._reasoning.append(piece.reasoning)
                    yield ReasoningEvent(piece.reasoning)
                async with aclosing(self._segments(self._cut(piece.text))) as events:
                    async for event in events:
                        yield event
                if self.check_failures:
                    return
                for delta in piece.calls:
                    for event in self._calls.take(delta):
                        yield event
        for event in self._calls.end():
            yield event
        async with aclosing(self._segments(self._chunker.flush() if self._chunker else [])) as events:
            async for event in events:
                yield event
        if self.check_failures:
            return
        self.completed_normally = True
        yield DoneEvent(self.finish_reason or "", self.usage, self.timings)
        if self._final_checks:
            text = self.full_text
            results = await verdicts(self._final_checks, text)
            self.check_failures += failures(results, text)
            yield CheckEvent(text, results, final=True)

    def _note(self, piece: Piece) -> None:
        self.stream_id = self.stream_id or piece.stream_id
        self.refusal += piece.refusal
        self.finish_reason = self.finish_reason or piece.finish_reason
        self.usage = piece.usage or self.usage
        self.timings = piece.timings or self.timings

    def _cut(self, delta: str) -> list[str]:
        if not delta:
            return []
        self._transcript.add(delta)
        return [delta] if self._chunker is None else self._chunker.feed(delta)

    async def _segments(self, segments: list[str]) -> AsyncGenerator[StreamEvent, None]:
        """Each after its checks; up to the first that fails one."""
        for segment in segments:
            if self._checks:
                results = await verdicts(self._checks, segment, self._transcript.delivered)
                failed = failures(results, segment)
                if failed:
                    self.check_failures += failed
                    self.failure_reason = f"check failed: {', '.join(one.name for one in failed)}"
                yield CheckEvent(segment, results)
                if failed:
                    return
            yield TextEvent(segment)

    # ---- ends

    def _fail(self, error: BaseException) -> None:
        if self.failure_reason is None:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self.failure_reason = "cancelled" if isinstance(error, asyncio.CancelledError) else said

    async def _complete(self) -> CompletedEvent:
        event = CompletedEvent(
            self.stream_id, self.full_text, self.completed_normally, self.failure_reason, tuple(self.check_failures)
        )
        if not self._completed:
            self._completed = True
            await self._tell(event)
        return event

    async def _tell(self, event: StreamEvent) -> None:
        for observer in self._observers:
            try:
                told = observer(event)
                if inspect.isawaitable(told):
                    await told
            except Exception:  # an observer's failure is its own: it is reported, and the stream goes on
                log.exception("an observer of stream %s failed at %s", self.stream_id, type(event).__name__)


class _Texts:
    """The segments among a stream's events. No generator: one that is dropped on the way would be closed by a task of the loop's,
    beside whoever closes the stream."""

    def __init__(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._events = events

    def __aiter__(self) -> "_Texts":
        return self

    async def __anext__(self) -> str:
        while True:
            event = await anext(self._events)
            if isinstance(event, TextEvent):
                return event.text
