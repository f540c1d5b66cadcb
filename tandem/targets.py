"""Where an answer comes from: a gateway, or the three services called one by one."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import httpx

from protocol.event_stream import EventStream, StreamProtocolError
from protocol.events import ErrorEvent, GenerateEvent
from protocol.generate import NOT_THE_WORKERS
from protocol.usage import Usage
from tandem.answer import Answer, Piece
from tandem.connection import Calls, Connection
from tandem.errors import GenerationFailed

JsonObject = dict[str, Any]

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
GENERATE = "/inference/v1/generate"


class Target(Protocol):
    def pieces(self, request: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        """The answer to a request for a chat completion (`messages`) or a completion (`prompt`), as it comes. Closing it ends the
        generation. Raises `tandem.errors.StreamError`s and `StreamProtocolError`."""


class Gateway:
    """A gateway, or any OpenAI-compatible server, by its address (with or without `/v1`). A `client` that is given is used and left
    open."""

    def __init__(self, url: str, *, api_key: str | None = None, client: httpx.AsyncClient | None = None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._connection = Connection(api_key, client)

    async def pieces(self, request: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        options = {"include_usage": True, **(request.get("stream_options") or {})}
        body = {**request, "stream": True, "stream_options": options}
        answer = Answer()
        async with self._connection.opened() as calls, aclosing(calls.stream(self._url + endpoint(request), body)) as payloads:
            async for data in payloads:
                if (piece := answer.feed(data)) is not None:
                    yield piece
        answer.close()


class Pipeline:
    """Render, worker and derender by their addresses, one derender call for each event of the worker's stream. What this process
    keeps between calls is the stream's state: any replica may take the next."""

    def __init__(
        self, *, render: str, worker: str, derender: str, api_key: str | None = None, client: httpx.AsyncClient | None = None
    ) -> None:
        self._render, self._worker, self._derender = (url.rstrip("/") for url in (render, worker, derender))
        self._connection = Connection(api_key, client)

    async def pieces(self, request: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        path = endpoint(request)
        async with self._connection.opened() as calls:
            prompt = await calls.post(f"{self._render}{path}/render", dict(request))
            if not {"request_id", "token_ids"} <= prompt.keys():
                raise StreamProtocolError(f"{self._render} answered something else than a generate request", 0)
            chunks = _Chunks(calls, f"{self._derender}{path}/derender", request, prompt)
            stream = EventStream(request_id=prompt["request_id"], resumed=len(prompt.get("output_token_ids") or ()))
            own = {name: value for name, value in prompt.items() if name not in NOT_THE_WORKERS}
            body = {**own, "stream": True, "stream_options": {"include_usage": True}}
            async with aclosing(calls.stream(self._worker + GENERATE, body)) as payloads:
                async for data in payloads:
                    for event in stream.feed(data):
                        yield await chunks.piece(event)
                    if chunks.finished and not stream.ended:
                        # A stop string: only derender knows that the answer is over, and the worker is told by closing.
                        yield chunks.counted()
                        return
            for event in stream.close():
                yield await chunks.piece(event)


class _Chunks:
    """The derender calls of one answer: the context goes with the first, the state with every later one."""

    def __init__(self, calls: Calls, url: str, request: Mapping[str, Any], prompt: JsonObject) -> None:
        self._calls, self._url, self._prompt = calls, url, prompt
        original = "chat_request" if "messages" in request else "completion_request"
        ids = prompt["token_ids"]
        self._context: JsonObject = {original: dict(request), "prompt_token_ids": ids, "prompt_tokens": len(ids)}
        self._context["profile"] = prompt.get("profile")
        self._state: JsonObject | None = None
        self._answer = Answer()

    @property
    def finished(self) -> bool:
        return self._answer.finished

    async def piece(self, event: GenerateEvent) -> Piece:
        if isinstance(event, ErrorEvent):
            raise GenerationFailed(event.error)
        body: JsonObject = {"stream": True, "model": self._prompt.get("model"), "generate_chunk": json.loads(event.wire())}
        body |= self._context if self._state is None else {"stream_state": self._state}
        answered = await self._calls.post(self._url, body)
        if not {"chunk", "stream_state"} <= answered.keys():
            raise StreamProtocolError(f"{self._url} answered something else than a chunk and its state", 0)
        self._state = answered["stream_state"]
        return self._answer.take(answered["chunk"])

    def counted(self) -> Piece:
        """The usage of an answer that was ended here."""
        count = (self._state or {}).get("token_count", 0)
        return Piece(self._prompt["request_id"], usage=Usage.of(len(self._prompt["token_ids"]), count))


def endpoint(request: Mapping[str, Any]) -> str:
    """Raises `ValueError` for a request that is none of one answer."""
    if ("messages" in request) == ("prompt" in request):
        raise ValueError("a request has either messages (a chat) or a prompt (a completion)")
    if (request.get("n") or 1) != 1 or isinstance(request.get("prompt"), list):
        raise ValueError("a stream is one answer: give n=1 and one prompt, and begin a stream for each answer")
    return CHAT if "messages" in request else COMPLETION
