"""`GET /v1/models` and `GET /health`."""

from typing import Literal

from protocol.base import Maybe, Positive, Wire


class ModelCard(Wire):
    """`profile` is the fingerprint of the model's text side; `formats` says which parsers read its output."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "tandem"
    root: Maybe[str] = None
    parent: Maybe[str] = None
    max_model_len: Maybe[Positive] = None
    profile: Maybe[str] = None
    formats: Maybe[dict[str, str | None]] = None


class ModelList(Wire):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(Wire):
    """`degraded`: some of the services behind this one do not answer, but each kind has one that does. `services` names them."""

    status: Literal["ok", "degraded", "draining", "down"]
    service: str
    version: str
    services: Maybe[dict[str, str]] = None
