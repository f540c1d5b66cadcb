"""Any OpenAI-compatible address: streamed chat completions."""

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from protocol.base import JsonObject, Natural, Wire
from protocol.errors import ErrorInfo
from protocol.generate import Timings
from protocol.sse import DONE, SSEDecoder, SSEError
from protocol.usage import Usage
from tandem.bench.errors import broken, refused
from tandem.bench.requests import Request
from tandem.bench.seen import Answer, Arrival, Seen
from tandem.bench.targets import Server, Target
from tandem.bench.targets.caller import Caller, first_model
from tandem.bench.targets.generating import failed

CHAT = "/v1/chat/completions"
KNOW_IGNORE_EOS = frozenset({"tandem", "vllm", "sglang"})
"""`owned_by` of the models of servers that take `ignore_eos`. OpenAI's own refuses what it does not know."""


class _Choice(Wire):
    index: Natural = 0
    delta: JsonObject | None = None
    finish_reason: str | None = None


class _Chunk(Wire):
    """What is read of a chunk; servers differ in all the rest."""

    id: str | None = None
    choices: list[_Choice] = Field(default_factory=list)
    usage: Usage | None = None
    timings: Any = None
    error: Any = None


@dataclass
class OpenAITarget(Target):
    server: Caller
    model: str | None = None

    async def probe(self) -> Server:
        cards = await self.server.models()
        await self.server.must_serve(CHAT, strictly=False)
        self.model = self.model or first_model(self.server, cards)
        owners = {card.owned_by.lower() for card in cards if card.id == self.model}
        return Server({"openai": self.server.address}, self.model, bool(owners & KNOW_IGNORE_EOS))

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        body = {"model": self.model, **request.body, "stream": True, "stream_options": {"include_usage": True}}
        reading = ChatReading(hashed=request.greedy)
        decoder = SSEDecoder()
        async with aclosing(self.server.stream(CHAT, body)) as pieces:
            async for at, piece in pieces:
                try:
                    sent = decoder.feed(piece)
                except SSEError as error:
                    raise broken(str(error)) from error
                for event in sent:
                    if reading.feed(at, event.data):
                        yield Arrival(at, 1)
        yield reading.answer()


class ChatReading:
    """One streamed chat completion. Output is any of content, reasoning, refusal and calls; a role alone is none."""

    def __init__(self, *, hashed: bool) -> None:
        self._hash = hashlib.sha256() if hashed else None
        self._chunks = 0
        self._ended: float | None = None
        self._finish: str | None = None
        self._id: str | None = None
        self._usage: Usage | None = None
        self._timings: Timings | None = None

    def feed(self, at: float, data: str) -> bool:
        """Whether this payload brought output. Raises `RequestFailed` for what may not come here, and for errors."""
        if self._ended is not None:
            raise broken(f"something follows {DONE}: {data[:100]}")
        if data == DONE:
            self._ended = at
            return False
        try:
            chunk = _Chunk.model_validate_json(data)
        except ValidationError as error:
            raise broken(f"a payload that is no chat completion chunk: {data[:200]}") from error
        if chunk.error is not None:
            raise _told(chunk.error)
        self._id = self._id or chunk.id
        self._usage = chunk.usage or self._usage
        self._timings = _timings(chunk.timings) or self._timings
        brought = False
        for choice in chunk.choices:
            if choice.index != 0:
                raise broken(f"a choice that was not asked for: {data[:200]}")
            text = output_of(choice.delta or {})
            if text and self._finish is not None:
                raise broken(f"output after the choice's end: {data[:200]}")
            self._finish = choice.finish_reason or self._finish
            if text:
                brought = True
                if self._hash is not None:
                    self._hash.update(text.encode("utf-8", "surrogatepass"))
        self._chunks += brought
        return brought

    def answer(self) -> Answer:
        """To be asked when the connection has ended. Raises `RequestFailed` for a stream that is not whole."""
        if self._ended is None:
            raise broken(f"the stream ended without {DONE}")
        if self._finish is None:
            raise broken("the stream ended without a finish_reason")
        usage = self._usage
        counted = usage is not None and usage.completion_tokens is not None
        return Answer(
            ended=self._ended,
            finish_reason=self._finish,
            request_id=self._id,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            prompt_source="usage" if usage is not None else None,
            output_tokens=usage.completion_tokens or 0 if usage is not None and counted else self._chunks,
            output_source="usage" if counted else "chunks",
            timings=self._timings,
            output_sha256=self._hash.hexdigest() if self._hash is not None else None,
            hashed="text" if self._hash is not None else None,
        )


def output_of(delta: JsonObject) -> str:
    """The text of a delta, in the order of reasoning, content, refusal, calls; empty where it brings no output."""
    parts = [delta.get("reasoning") or delta.get("reasoning_content"), delta.get("content"), delta.get("refusal")]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [function.get("name"), function.get("arguments")]
    return "".join(part for part in parts if isinstance(part, str))


def _timings(value: Any) -> Timings | None:
    """Those of our wire; other servers use the field for numbers of their own."""
    try:
        return None if value is None else Timings.model_validate(value)
    except ValidationError:
        return None


def _told(error: Any) -> Exception:
    try:
        return failed(ErrorInfo.model_validate(error))
    except ValidationError:
        return refused(json.dumps(error)[:300])
