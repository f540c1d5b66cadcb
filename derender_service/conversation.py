"""One WebSocket's side of a stream: the stream route's bodies, with the state of each choice kept here between them.

What is kept is only what the client would otherwise have carried: with the state that it was given last it goes on at any replica.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from derender_service.derenderer import Derenderer
from derender_service.metrics import DerenderMetrics
from derender_service.outcome import outcome
from derender_service.signing import StateKeys
from protocol.derender import DerenderChatStreamResponse, DerenderCompletionStreamResponse, DerenderStreamState
from protocol.derender_transports import DerenderChatMessage, DerenderCompletionMessage
from protocol.errors import BadRequest
from protocol.sampling import MAX_CHOICES
from service_kit.body import parse

M = TypeVar("M", DerenderChatMessage, DerenderCompletionMessage)
Answer = DerenderChatStreamResponse | DerenderCompletionStreamResponse


class Conversation(Generic[M]):
    """Answers the messages of one connection, one after the other. `work` derenders one of them."""

    def __init__(
        self,
        derenderer: Derenderer,
        keys: StateKeys,
        metrics: DerenderMetrics,
        shape: type[M],
        work: Callable[[Derenderer, M], Answer],
    ) -> None:
        self._derenderer, self._keys, self._metrics = derenderer, keys, metrics
        self._shape: type[M] = shape
        self._work: Callable[[Derenderer, M], Answer] = work
        self._states: dict[int, DerenderStreamState] = {}
        self._opening: DerenderStreamState | None = None
        """The state of a stream whose first chunks had no choice: each of its choices begins with it."""
        self._latest: int | None = None

    def answer(self, message: str | bytes) -> str:
        """`{"chunk"}`, with `stream_state` where it was asked for or a choice ends; or `{"error"}`, and all stays as it was."""
        told = outcome(partial(self._answer, message))
        self._metrics.count_message(told.status)
        return told.body.decode()

    def _answer(self, message: str | bytes) -> bytes:
        if isinstance(message, bytes):
            raise BadRequest("messages must be JSON in text frames, this one is binary")
        asked = parse(self._shape, message)
        self._metrics.count(asked)
        choices = asked.generate_chunk.choices
        index = choices[0].index if choices else None
        self._check_room(index)
        if asked.stream_state is not None:
            asked = self._keys.incoming(asked)
        else:
            asked = asked.model_copy(update={"stream_state": self._state(index)})
        answer = self._work(self._derenderer, asked)
        self._keep(index, answer.stream_state)
        if asked.return_state or any(choice.finish_reason is not None for choice in answer.chunk.choices):
            return self._keys.outgoing(answer).wire()
        return answer.model_dump_json(exclude={"stream_state"}).encode()

    def _check_room(self, index: int | None) -> None:
        if index is not None and index not in self._states and len(self._states) >= MAX_CHOICES:
            raise BadRequest(
                f"a connection keeps the state of {MAX_CHOICES} choices, and index {index} would be one more",
                param="generate_chunk.choices.0.index",
            )

    def _state(self, index: int | None) -> DerenderStreamState | None:
        """What the client would have sent. A chunk without a choice (usage) goes with the choice that was answered last."""
        if index is None:
            index = self._latest
        return self._opening if index is None else self._states.get(index, self._opening)

    def _keep(self, index: int | None, state: DerenderStreamState) -> None:
        if index is not None:
            self._states[index], self._latest = state, index
        elif not state.role_sent:
            self._opening = state
