"""Any OpenAI-compatible address: streamed chat completions."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from protocol.event_stream import StreamProtocolError
from protocol.generate import Timings
from protocol.sse import SSEDecoder, SSEError
from protocol.usage import Usage
from tandem.answer import Answer as StreamedAnswer
from tandem.bench.errors import broken
from tandem.bench.requests import Request
from tandem.bench.seen import Answer, Arrival, Seen
from tandem.bench.targets import Server, Target
from tandem.bench.targets.caller import Caller, first_model
from tandem.bench.targets.generating import failed
from tandem.errors import GenerationFailed

CHAT = "/v1/chat/completions"
KNOW_IGNORE_EOS = frozenset({"tandem", "vllm", "sglang"})
"""`owned_by` of the models of servers that take `ignore_eos`. OpenAI's own refuses what it does not know."""


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
    """One streamed chat completion, counted. Output is any of content, reasoning, refusal and calls; a role alone is none."""

    def __init__(self, *, hashed: bool) -> None:
        self._hash = hashlib.sha256() if hashed else None
        self._answer = StreamedAnswer()
        self._chunks = 0
        self._ended = 0.0
        self._finish: str | None = None
        self._id: str | None = None
        self._usage: Usage | None = None
        self._timings: Timings | None = None

    def feed(self, at: float, data: str) -> bool:
        """Whether this payload brought output. Raises `RequestFailed` for what may not come here, and for errors."""
        try:
            piece = self._answer.feed(data)
        except StreamProtocolError as error:
            raise broken(error.what) from error
        except GenerationFailed as error:
            raise failed(error.info) from error
        if piece is None:
            self._ended = at
            return False
        self._id = self._id or piece.stream_id
        self._usage = piece.usage or self._usage
        self._timings = piece.timings or self._timings
        self._finish = self._finish or piece.finish_reason
        if not piece.output:
            return False
        if self._hash is not None:
            self._hash.update(piece.output.encode("utf-8", "surrogatepass"))
        self._chunks += 1
        return True

    def answer(self) -> Answer:
        """To be asked when the connection has ended. Raises `RequestFailed` for a stream that is not whole."""
        try:
            self._answer.close()
        except StreamProtocolError as error:
            raise broken(error.what) from error
        usage = self._usage
        counted = usage is not None and usage.completion_tokens is not None
        return Answer(
            ended=self._ended,
            finish_reason=self._finish or "",
            request_id=self._id,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            prompt_source="usage" if usage is not None else None,
            output_tokens=usage.completion_tokens or 0 if usage is not None and counted else self._chunks,
            output_source="usage" if counted else "chunks",
            timings=self._timings,
            output_sha256=self._hash.hexdigest() if self._hash is not None else None,
            hashed="text" if self._hash is not None else None,
        )
