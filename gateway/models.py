"""`GET /v1/models`: render's cards, with the formats that derender reads outputs in."""

import json
from typing import Any

from pydantic import ValidationError

from gateway.upstreams import Upstream
from protocol.errors import TandemError
from protocol.models import ModelCard, ModelList

_PATH = "/v1/models"


async def listing(render: Upstream, derender: Upstream) -> bytes:
    """What render answers, with all that another system's cards have. Raises as `Upstream.get` does. A derender service that does
    not answer takes the formats from the cards, not the cards."""
    body = await render.get(_PATH)
    try:
        formats = {card.id: card.formats for card in _cards(await derender.get(_PATH)) if card.formats}
    except TandemError:
        return body
    if not formats or not _cards(body):
        return body
    models: dict[str, Any] = json.loads(body)
    models["data"] = [card | ({"formats": formats[card["id"]]} if card["id"] in formats else {}) for card in models["data"]]
    return json.dumps(models, ensure_ascii=False, separators=(",", ":")).encode()


def _cards(body: bytes) -> list[ModelCard]:
    try:
        return ModelList.model_validate_json(body).data
    except ValidationError:
        return []
