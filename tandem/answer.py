"""OpenAI's stream of one answer, chunk by chunk, as pieces: both endpoints' shapes, and what may follow what."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from protocol.base import JsonObject, Natural, Wire
from protocol.errors import ErrorInfo
from protocol.event_stream import StreamProtocolError
from protocol.generate import Timings
from protocol.payload import read_object
from protocol.sse import DONE
from protocol.tools import ToolCallDelta
from protocol.usage import Usage
from tandem.errors import GenerationFailed


class _Delta(Wire):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class _Choice(Wire):
    """With a `delta` of a chat, or the `text` of a completion."""

    index: Natural = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(Wire):
    """What is read of a chunk; servers differ in all the rest."""

    id: str | None = None
    choices: list[_Choice] = Field(default_factory=list)
    usage: Usage | None = None
    timings: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk adds. `finish_reason` is on one piece of an answer; `usage` and `timings` on that or a later one."""

    stream_id: str | None
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: Timings | None = None

    @property
    def output(self) -> str:
        """All that the model made of it: reasoning, text, refusal, calls. Empty where it brings none, as with a role alone."""
        functions = [call.function for call in self.calls if call.function is not None]
        calls = [part for function in functions for part in (function.name, function.arguments) if part]
        return "".join((self.reasoning, self.text, self.refusal, *calls))


class Answer:
    """Reads one answer's payloads, checked: one choice, one end, and nothing behind `[DONE]`."""

    def __init__(self) -> None:
        self.finished = False
        self.closed = False
        self._count = 0

    def feed(self, data: str) -> Piece | None:
        """Of a payload; None for `[DONE]`. Raises `GenerationFailed` for an error that the server sent, `StreamProtocolError` for
        what may not come here."""
        if self.closed:
            raise self._broken(f"something follows {DONE}")
        if data == DONE:
            self.closed = True
            return None
        try:
            payload = read_object(data)
        except ValueError as error:
            raise self._broken(str(error)) from error
        return self.take(payload)

    def take(self, payload: JsonObject) -> Piece:
        """Of a chunk that has been read. Raises as `feed` does."""
        if payload.get("error") is not None:
            raise GenerationFailed(_told(payload["error"]))
        piece = self._piece(payload)
        if self.finished and (piece.output or piece.finish_reason):
            raise self._broken("more of an answer that has ended")
        self.finished = self.finished or piece.finish_reason is not None
        self._count += 1
        return piece

    def close(self) -> None:
        """To be called when the connection has ended. Raises `StreamProtocolError` where the answer has not."""
        if not self.finished:
            raise self._broken("the stream ended without a finish_reason")
        if not self.closed:
            raise self._broken(f"the stream ended without {DONE}")

    def _piece(self, payload: JsonObject) -> Piece:
        try:
            chunk = _Chunk.model_validate(payload)
        except ValidationError as error:
            raise self._broken(f"a payload that is no chunk of an answer: {str(payload)[:200]}") from error
        if len(chunk.choices) > 1 or any(choice.index for choice in chunk.choices):
            raise self._broken("a choice that was not asked for")
        choice = chunk.choices[0] if chunk.choices else _Choice()
        delta = choice.delta or _Delta()
        return Piece(
            chunk.id,
            delta.content or choice.text or "",
            delta.reasoning or delta.reasoning_content or "",
            delta.refusal or "",
            tuple(delta.tool_calls or ()),
            choice.finish_reason,
            chunk.usage,
            _timings(chunk.timings),
        )

    def _broken(self, what: str) -> StreamProtocolError:
        return StreamProtocolError(what, self._count)


def _timings(value: Any) -> Timings | None:
    """Those of our wire; other servers use the field for numbers of their own."""
    try:
        return None if value is None else Timings.model_validate(value)
    except ValidationError:
        return None


def _told(error: Any) -> ErrorInfo:
    try:
        return ErrorInfo.model_validate(error)
    except ValidationError:
        return ErrorInfo(message=json.dumps(error)[:300], type="UpstreamError")
