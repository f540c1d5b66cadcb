"""What a derender service counts beside its requests."""

from collections import Counter
from collections.abc import Iterable

from protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from service_kit.metrics import Metrics

AnyRequest = DerenderChatRequest | DerenderChatStreamRequest | DerenderCompletionRequest | DerenderCompletionStreamRequest


class DerenderMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._tokens = metrics.counter("derender_tokens", "Output token ids that were derendered.", ("mode",))
        self._items = metrics.counter("derender_items", "Items of batch calls, by the status each was answered with.", ("status",))
        self._messages = metrics.counter("derender_messages", "Messages over WebSockets, by the status of the answer.", ("status",))

    def count(self, request: AnyRequest) -> None:
        if isinstance(request, DerenderChatStreamRequest | DerenderCompletionStreamRequest):
            mode, choices = "stream", list(request.generate_chunk.choices)
            count = sum(len(choice.token_ids or ()) for choice in choices)
        else:
            mode = "batch"
            responses = [request.generate_response] if isinstance(request, DerenderChatRequest) else request.generate_responses
            count = sum(len(choice.token_ids or ()) for response in responses for choice in response.choices)
        self._tokens.labels(mode).inc(count)

    def count_items(self, statuses: Iterable[int]) -> None:
        for status, count in Counter(statuses).items():
            self._items.labels(str(status)).inc(count)

    def count_message(self, status: int) -> None:
        self._messages.labels(str(status)).inc()
