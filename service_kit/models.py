"""The one model a service serves: its card (`GET /v1/models`), and the 404 for any other name."""

import time
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response

from protocol.errors import NotFound
from protocol.models import ModelCard, ModelList
from service_kit.body import documented, json_response


@dataclass(frozen=True)
class ServedModel:
    """`name` is what clients call it, `root` what `--model` said. `created` is when it began to be served, in unix seconds."""

    name: str
    root: str
    created: int
    max_model_len: int | None = None
    profile: str | None = None
    formats: dict[str, str | None] | None = None

    @classmethod
    def of(
        cls,
        model: str,
        served_model_name: str | None,
        *,
        max_model_len: int | None = None,
        profile: str | None = None,
        formats: dict[str, str | None] | None = None,
    ) -> "ServedModel":
        return cls(served_model_name or model, model, int(time.time()), max_model_len, profile, formats)

    def check(self, asked: str | None) -> str:
        """The name to answer with; a request that names no model means this one. Raises `NotFound` for another name."""
        if asked is not None and asked != self.name:
            raise NotFound(f"The model `{asked}` does not exist. This server serves `{self.name}`.", param="model")
        return self.name

    def listing(self) -> ModelList:
        card = ModelCard(
            id=self.name,
            created=self.created,
            root=self.root,
            max_model_len=self.max_model_len,
            profile=self.profile,
            formats=self.formats,
        )
        return ModelList(data=[card])


models_router = APIRouter(tags=["service"])


@models_router.get("/v1/models", **documented(answers=(ModelList,), errors=()))
async def list_models(request: Request) -> Response:
    """The one model that is served. Needs `app.state.served`."""
    served: ServedModel = request.app.state.served
    return json_response(served.listing().wire())
