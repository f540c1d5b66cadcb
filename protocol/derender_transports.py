"""The other two ways to send a stream body to derender: many in one call, or one a message over a WebSocket.

Both are the body of the single route with a field more, and are for streams alone: `stream` may be left out, and may not be false.
"""

from typing import Any, Literal

from protocol.base import Maybe, Natural, Wire
from protocol.chat import ChatCompletionChunk
from protocol.completion import CompletionChunk
from protocol.derender import DerenderChatStreamRequest, DerenderCompletionStreamRequest, DerenderStreamState
from protocol.errors import ErrorInfo

CHAT_PATH: Literal["/v1/chat/completions/derender"] = "/v1/chat/completions/derender"
COMPLETION_PATH: Literal["/v1/completions/derender"] = "/v1/completions/derender"
BATCH_PATH = "/v1/derender/batch"
MAX_ITEMS = 4096
"""Items of one batch call."""


class DerenderChatItem(DerenderChatStreamRequest):
    """An item of `POST /v1/derender/batch`. `endpoint` is the path that would take it alone (see `item_endpoint`)."""

    endpoint: Literal["/v1/chat/completions/derender"] = CHAT_PATH
    stream: Literal[True] = True


class DerenderCompletionItem(DerenderCompletionStreamRequest):
    """As `DerenderChatItem`, for completions."""

    endpoint: Literal["/v1/completions/derender"] = COMPLETION_PATH
    stream: Literal[True] = True


class DerenderItemAnswer(Wire):
    """What the item's endpoint would have answered: its HTTP status, and the fields of its body."""

    status: Natural
    chunk: Maybe[ChatCompletionChunk | CompletionChunk] = None
    stream_state: Maybe[DerenderStreamState] = None
    error: Maybe[ErrorInfo] = None


def item_endpoint(item: Any) -> Any:
    """The path that an item is for: the one it names; else completions if it has a `completion_request`, or the state of a stream
    that began with one; else chat."""
    if not isinstance(item, dict):
        return CHAT_PATH
    if "endpoint" in item:
        return item["endpoint"]
    state = item.get("stream_state")
    context = state.get("context") if isinstance(state, dict) else None
    begun = isinstance(context, dict) and context.get("completion") is True
    return COMPLETION_PATH if begun or item.get("completion_request") is not None else CHAT_PATH


class DerenderChatMessage(DerenderChatStreamRequest):
    """A message to `/v1/chat/completions/derender/ws`. The connection keeps the state of each choice: `stream_state` is sent to go
    on with a stream that another connection began, and is answered when `return_state` asks for it, and with a choice's end."""

    stream: Literal[True] = True
    return_state: bool = False


class DerenderCompletionMessage(DerenderCompletionStreamRequest):
    """As `DerenderChatMessage`, to `/v1/completions/derender/ws`."""

    stream: Literal[True] = True
    return_state: bool = False
