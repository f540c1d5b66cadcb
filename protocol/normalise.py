"""One reading of every generate stream: Tandem's typed events, or vLLM's untyped chunks turned into them."""

from typing import Any

from pydantic import ValidationError

from protocol.base import Maybe, Natural, TokenId, Wire
from protocol.errors import ErrorInfo
from protocol.events import DoneChoice, DoneEvent, ErrorEvent, GenerateEvent, TokenChoice, TokenEvent, parse_event
from protocol.generate import FinishReason, StopReason
from protocol.logprobs import TokenLogprobs
from protocol.usage import Usage


class StreamError(ValueError):
    """A payload that is no part of a generate stream."""


class _ForeignChoice(Wire):
    index: Natural
    token_ids: list[TokenId] | None = None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason = None


class _ForeignChunk(Wire):
    request_id: str | None = None
    created: Natural | None = None
    choices: list[_ForeignChoice] = []
    usage: Usage | None = None
    prompt_token_ids: Maybe[list[TokenId]] = None
    error: ErrorInfo | None = None


class StreamNormaliser:
    """Payloads in, typed events out. One normaliser a request.

    vLLM puts the finish on the chunk of the last tokens and the usage on a later chunk without choices. So a `done` made from its
    chunks waits: the last one until the usage has come, or until `end()`, since only then is it known to be the last.
    `n` is how many choices the request has; `resumed` how many ids each had before this stream.
    """

    def __init__(self, request_id: str, created: int, *, n: int = 1, resumed: int = 0) -> None:
        self._request_id = request_id
        self._created = created
        self._open = n
        self._resumed = resumed
        self._lengths: dict[int, int] = {}
        self._waiting: DoneEvent | None = None

    def feed(self, payload: dict[str, Any]) -> list[GenerateEvent]:
        """The events of one payload. Raises `StreamError` for one that is neither an event of ours nor a chunk of vLLM's."""
        try:
            if "type" in payload:
                return [parse_event(payload)]
            chunk = _ForeignChunk.model_validate(payload)
        except ValidationError as error:
            raise StreamError(f"the generate stream sent a payload that cannot be read: {error}") from error
        if chunk.error is not None:
            return [ErrorEvent(request_id=chunk.request_id or self._request_id, error=chunk.error)]
        events: list[GenerateEvent] = []
        for choice in chunk.choices:
            events += self._choice(chunk, choice)
        if chunk.usage is not None and not chunk.choices:
            events += self._release(chunk.usage)
        return events

    def end(self) -> list[GenerateEvent]:
        """What was still waiting when the stream ended."""
        return self._release(None)

    def _choice(self, chunk: _ForeignChunk, choice: _ForeignChoice) -> list[GenerateEvent]:
        request_id, created = chunk.request_id or self._request_id, chunk.created or self._created
        ids = choice.token_ids or []
        entries = choice.logprobs.content if choice.logprobs else None
        start = self._lengths.get(choice.index, self._resumed)
        self._lengths[choice.index] = start + len(ids)
        finished = choice.finish_reason is not None
        # A stop by token brings that token last in the chunk; a stop by string or by length does not.
        held = 1 if choice.finish_reason is FinishReason.STOP and ids and not isinstance(choice.stop_reason, str) else 0
        sent = len(ids) - held
        logprobs = [
            None if entries is None else TokenLogprobs(content=part) for part in ((entries or [])[:sent], (entries or [])[sent:])
        ]
        events: list[GenerateEvent] = []
        if sent:
            events.append(
                TokenEvent(
                    request_id=request_id,
                    created=created,
                    choices=[TokenChoice(index=choice.index, token_index=start, token_ids=ids[:sent], logprobs=logprobs[0])],
                    prompt_token_ids=chunk.prompt_token_ids,
                )
            )
        if finished:
            done = DoneEvent(
                request_id=request_id,
                created=created,
                choices=[
                    DoneChoice(
                        index=choice.index,
                        token_index=start + sent,
                        token_ids=ids[sent:],
                        logprobs=logprobs[1] if held else None,
                        output_tokens=start + len(ids),
                        finish_reason=choice.finish_reason,
                        stop_reason=choice.stop_reason,
                    )
                ],
            )
            self._open -= 1
            if self._open:
                events.append(done)
            else:
                self._waiting = done
        return events

    def _release(self, usage: Usage | None) -> list[GenerateEvent]:
        waiting, self._waiting = self._waiting, None
        return [] if waiting is None else [waiting.model_copy(update={"usage": usage})]
