"""OpenAI's stream of one answer, chunk by chunk, as pieces: the two endpoints' shapes, and what may follow what."""

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from protocol.base import Wire
from protocol.chat import ChatCompletionChunk
from protocol.completion import CompletionChunk
from protocol.errors import ErrorResponse
from protocol.event_stream import StreamProtocolError
from protocol.generate import Timings
from protocol.sse import DONE
from protocol.tools import ToolCallDelta
from protocol.usage import Usage
from tandem.errors import GenerationFailed

JsonObject = dict[str, Any]
Shape = TypeVar("Shape", bound=Wire)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk adds. `finish_reason` is on one piece of an answer; `usage` and `timings` on that or a later one."""

    stream_id: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: Timings | None = None


class Answer:
    """Reads one answer's payloads, checked: one choice, one end, and nothing behind `[DONE]`."""

    def __init__(self) -> None:
        self.finished = False
        self._closed = False
        self._count = 0

    def feed(self, data: str) -> Piece | None:
        """Of a payload; None for `[DONE]`. Raises `GenerationFailed` for an error that the server sent, `StreamProtocolError` for
        what may not come here."""
        if self._closed:
            raise self._broken("something follows [DONE]")
        if data == DONE:
            self._closed = True
            return None
        try:
            payload = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._broken(f"a payload that is no JSON: {data[:100]!r}") from error
        return self.take(payload)

    def take(self, payload: JsonObject) -> Piece:
        """Of a chunk that has been read."""
        if isinstance(payload, dict) and payload.get("error"):
            raise GenerationFailed(self._read(ErrorResponse, payload).error)
        completes = isinstance(payload, dict) and payload.get("object") == "text_completion"
        piece = self._of_completion(payload) if completes else self._of_chat(payload)
        if self.finished and (piece.text or piece.reasoning or piece.calls or piece.finish_reason):
            raise self._broken("more of an answer that has ended")
        self.finished = self.finished or piece.finish_reason is not None
        self._count += 1
        return piece

    def close(self) -> None:
        """To be called when the connection has ended. Raises `StreamProtocolError` where the answer has not."""
        if not self.finished:
            raise self._broken("the stream closed without a finish_reason")
        if not self._closed:
            raise self._broken("the stream closed without [DONE]")

    def _of_chat(self, payload: JsonObject) -> Piece:
        chunk = self._read(ChatCompletionChunk, payload)
        if not chunk.choices:
            return Piece(chunk.id, usage=chunk.usage, timings=chunk.timings)
        choice = chunk.choices[0]
        self._one(len(chunk.choices), choice.index)
        delta = choice.delta
        return Piece(
            chunk.id,
            delta.content or "",
            delta.reasoning or delta.reasoning_content or "",
            tuple(delta.tool_calls or ()),
            choice.finish_reason,
            chunk.usage,
            chunk.timings,
        )

    def _of_completion(self, payload: JsonObject) -> Piece:
        chunk = self._read(CompletionChunk, payload)
        if not chunk.choices:
            return Piece(chunk.id, usage=chunk.usage, timings=chunk.timings)
        choice = chunk.choices[0]
        self._one(len(chunk.choices), choice.index)
        return Piece(chunk.id, choice.text, finish_reason=choice.finish_reason, usage=chunk.usage, timings=chunk.timings)

    def _one(self, count: int, index: int) -> None:
        if count > 1 or index:
            raise self._broken("a choice that was not asked for")

    def _read(self, shape: type[Shape], payload: JsonObject) -> Shape:
        try:
            return shape.model_validate(payload)
        except ValidationError as error:
            raise self._broken(f"a payload that is no chunk of an answer: {str(payload)[:200]}") from error

    def _broken(self, what: str) -> StreamProtocolError:
        return StreamProtocolError(what, self._count)
