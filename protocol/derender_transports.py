"""The other two ways to send a stream body to derender: many in one call, or one a message over a WebSocket.

Both are the body of the single route with a field more, and are for streams alone: `stream` may be left out, and may not be false.
"""

from typing import Literal

from protocol.base import Natural, Wire
from protocol.derender import (
    DerenderChatStreamRequest,
    DerenderChatStreamResponse,
    DerenderCompletionStreamRequest,
    DerenderCompletionStreamResponse,
)
from protocol.errors import ErrorResponse

CHAT_PATH: Literal["/v1/chat/completions/derender"] = "/v1/chat/completions/derender"
COMPLETION_PATH: Literal["/v1/completions/derender"] = "/v1/completions/derender"
BATCH_PATH = "/v1/derender/batch"
MAX_ITEMS = 4096
"""Items of one batch call."""


class DerenderChatItem(DerenderChatStreamRequest):
    """An item of `POST /v1/derender/batch`. `endpoint` is the path that would take it alone: it tells which of the types it is."""

    endpoint: Literal["/v1/chat/completions/derender"]
    stream: Literal[True] = True


class DerenderCompletionItem(DerenderCompletionStreamRequest):
    """As `DerenderChatItem`, for completions."""

    endpoint: Literal["/v1/completions/derender"]
    stream: Literal[True] = True


class DerenderItemAnswer(Wire):
    """What the item's endpoint would have answered: its HTTP status, and its body to the byte."""

    status: Natural
    body: DerenderChatStreamResponse | DerenderCompletionStreamResponse | ErrorResponse


class DerenderChatMessage(DerenderChatStreamRequest):
    """A message to `/v1/chat/completions/derender/ws`. The connection keeps the state of each choice: `stream_state` is sent to go
    on with a stream that another connection began, and is answered when `return_state` asks for it, and with a choice's end."""

    stream: Literal[True] = True
    return_state: bool = False


class DerenderCompletionMessage(DerenderCompletionStreamRequest):
    """As `DerenderChatMessage`, to `/v1/completions/derender/ws`."""

    stream: Literal[True] = True
    return_state: bool = False
