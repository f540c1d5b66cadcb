"""The derender calls of one request: the context goes with the first chunk of each choice, the state with every later one."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gateway.answers import Rendered, blamed, derendered_chunk
from gateway.asked import Endpoint
from gateway.upstreams import Upstream
from protocol.errors import RelayedError
from protocol.events import OutputEvent, TokenChoice, TokenEvent
from protocol.logprobs import TokenLogprobs
from service_kit.offload import by_length

JsonObject = dict[str, Any]


class Derendering:
    """Keeps the state of each choice between calls. `original` is the client's request body, as it came."""

    def __init__(self, derender: Upstream, endpoint: Endpoint, original: bytes, prompt: Rendered) -> None:
        self._derender, self._endpoint, self._original = derender, endpoint, original
        self._prompt = prompt
        self._states: dict[int, JsonObject] = {}

    async def chunk(self, event: OutputEvent) -> JsonObject:
        """The OpenAI chunk of one event. Any replica may take it; a call that breaks is repeated at another."""
        index = event.choices[0].index
        try:
            answer = await self._derender.post(self._endpoint.derender_path, await self._body(event, self._states.get(index)))
        except RelayedError as error:
            raise blamed(error) from error
        chunk, self._states[index] = await by_length(len(answer), partial(derendered_chunk, answer))
        return chunk

    @property
    def output_tokens(self) -> int:
        """Output ids of all choices that count: those up to the end of each, not what a worker made beyond a stop string."""
        return sum(state.get("token_count", 0) for state in self._states.values())

    @property
    def reasoning_tokens(self) -> int | None:
        """How many of them were reasoning; None where derender does not parse."""
        parsed = [state for state in self._states.values() if "checkpoint" in state]
        return sum(state.get("reasoning_tokens", 0) for state in parsed) if parsed else None

    async def _body(self, event: OutputEvent, state: JsonObject | None) -> bytes:
        head: JsonObject = {"stream": True, "model": self._prompt.request.get("model")}
        if state is not None:
            return with_field({**head, "stream_state": state}, "generate_chunk", event.wire())
        return await by_length(self._prompt.size, partial(self._first, head, event))

    def _first(self, head: JsonObject, event: OutputEvent) -> bytes:
        ids = self._prompt.token_ids
        head |= {"prompt_tokens": len(ids), "prompt_token_ids": ids, "profile": self._prompt.request.get("profile")}
        head["generate_chunk"] = json.loads(event.wire())
        return with_field(head, self._endpoint.original_field, self._original)


def with_field(head: JsonObject, name: str, raw: bytes) -> bytes:
    """`head` as JSON with one more field, whose value is JSON already: it may be long, and is not ours to read."""
    return json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"' + name.encode() + b'":' + raw + b"}"


def merged(batch: Sequence[OutputEvent]) -> Iterator[OutputEvent]:
    """Neighbouring token events of one choice as one event: what came together is derendered in one call."""
    run: list[TokenEvent] = []
    for event in batch:
        if isinstance(event, TokenEvent):
            if run and run[0].choices[0].index != event.choices[0].index:
                yield _joined(run)
                run = []
            run.append(event)
            continue
        if run:
            yield _joined(run)
            run = []
        yield event
    if run:
        yield _joined(run)


def _joined(run: Sequence[TokenEvent]) -> TokenEvent:
    first, choices = run[0], [event.choices[0] for event in run]
    if len(run) == 1:
        return first
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
    choice = TokenChoice(
        index=choices[0].index,
        token_index=choices[0].token_index,
        token_ids=[token_id for choice in choices for token_id in choice.token_ids],
        logprobs=TokenLogprobs(content=entries) if choices[0].logprobs else None,
    )
    return first.model_copy(update={"choices": [choice]})
