"""Many chunks per call: `POST /v1/derender/batch` takes stream bodies of any streams and answers each as its own route would.

Each item is read, answered and fails by itself. The work goes to the pool a slice at a time: between two slices others have their
turn, also at the interpreter, which runs one thread at a time.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from derender_service.derenderer import Derenderer
from derender_service.metrics import DerenderMetrics
from derender_service.outcome import Outcome, outcome
from derender_service.signing import StateKeys
from derender_service.stream import derender_chat_chunk, derender_completion_chunk
from protocol.derender_transports import (
    BATCH_PATH,
    CHAT_PATH,
    COMPLETION_PATH,
    MAX_ITEMS,
    DerenderChatItem,
    DerenderCompletionItem,
    DerenderItemAnswer,
    item_endpoint,
)
from protocol.errors import BadRequest, invalid
from service_kit.body import TOKENS, check_values, documented, json_response
from service_kit.disconnect import while_connected
from service_kit.json_array import elements
from service_kit.offload import is_small, offload

router = APIRouter(tags=["derender"])

SLICE_ITEMS = 16
SLICE_BYTES = 64 * 1024
"""A slice ends with the item that reaches one of them: one or two milliseconds of work, some fifty times what its hop costs."""

_ITEM: TypeAdapter[DerenderChatItem | DerenderCompletionItem] = TypeAdapter(
    Annotated[
        Annotated[DerenderChatItem, Tag(CHAT_PATH)] | Annotated[DerenderCompletionItem, Tag(COMPLETION_PATH)],
        Discriminator(item_endpoint),
    ]
)
_NO_ENDPOINT = ("union_tag_not_found", "union_tag_invalid")


@router.post(
    BATCH_PATH,
    **documented(
        DerenderChatItem, DerenderCompletionItem, answers=(DerenderItemAnswer,), list_asked=True, as_list=True, errors=(400, 413)
    ),
)
async def batch(request: Request) -> Response:
    """Chunks of many generate streams, chat and completions mixed, each with its own status, in the order they were sent."""
    body = await request.body()
    state = request.app.state
    answer = _Answer(state.derenderer, state.state_keys, state.derender_metrics)
    if is_small(body):
        return _listed(answer.slice(elements(body, limit=MAX_ITEMS)))
    return _listed(await while_connected(request, answer.sliced(body)))


class _Answer:
    """Answers items for one service; holds nothing of any stream."""

    def __init__(self, derenderer: Derenderer, keys: StateKeys, metrics: DerenderMetrics) -> None:
        self._derenderer, self._keys, self._metrics = derenderer, keys, metrics

    async def sliced(self, body: bytes) -> list[Outcome]:
        await offload(partial(check_values, body, TOKENS), size=len(body))
        items = await offload(partial(elements, body, limit=MAX_ITEMS), size=len(body))
        return [each for part in slices(items) for each in await offload(partial(self.slice, part))]

    def slice(self, items: Sequence[bytes]) -> list[Outcome]:
        outcomes = [outcome(partial(self._one, item)) for item in items]
        self._metrics.count_items(each.status for each in outcomes)
        return outcomes

    def _one(self, item: bytes) -> bytes:
        asked = read(item)
        self._metrics.count(asked)
        asked = self._keys.incoming(asked)
        if isinstance(asked, DerenderChatItem):
            return self._keys.outgoing(derender_chat_chunk(self._derenderer, asked)).wire()
        return self._keys.outgoing(derender_completion_chunk(self._derenderer, asked)).wire()


def read(item: bytes) -> DerenderChatItem | DerenderCompletionItem:
    """Raises `BadRequest` that names the wrong field."""
    try:
        return _ITEM.validate_json(item)
    except ValidationError as error:
        if error.error_count() == 1 and error.errors(include_url=False, include_input=False)[0]["type"] in _NO_ENDPOINT:
            raise BadRequest(f"endpoint: it must be '{CHAT_PATH}' or '{COMPLETION_PATH}'", param="endpoint") from error
        raise invalid(error) from error


def slices(items: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The items in slices of about the same work, in order."""
    part: list[bytes] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(item)
        if len(part) == SLICE_ITEMS or size >= SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _listed(outcomes: Sequence[Outcome]) -> Response:
    """Each body with its status as one field more, before its own."""
    return json_response(b"[" + b",".join(b'{"status":%d,%b' % (each.status, each.body[1:]) for each in outcomes) + b"]")
