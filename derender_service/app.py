"""The derender service: settings and app."""

from typing import Annotated

from fastapi import FastAPI
from pydantic import AfterValidator, Field, SecretStr

from derender_service.derenderer import Derenderer
from derender_service.metrics import DerenderMetrics
from derender_service.routes import router
from derender_service.signing import StateKeys, check_keys
from model_profile.profile import ModelProfile, load
from service_kit.app import build_app
from service_kit.models import ServedModel, models_router
from service_kit.settings import ModelSettings


class DerenderSettings(ModelSettings):
    """Settings of `tandem derender`."""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(8003, description="Port to listen on; 0 takes a free one.")
    max_logprobs: Annotated[int, Field(ge=0)] = Field(20, description="Most alternatives a token may have in logprobs.")
    state_key: Annotated[SecretStr, AfterValidator(check_keys)] | None = Field(
        None, description="Signs stream states; the same at every replica. With commas between: the first signs, all verify."
    )


def create_app(settings: DerenderSettings) -> FastAPI:
    """Loads the model's text side and builds the app. Raises `ProfileError` when that fails."""
    profile = load(settings.model, chat_template=settings.chat_template, max_model_len=settings.max_model_len)
    app = build_app(
        "derender", "Token ids to OpenAI answers: whole, or a chunk of a stream at a time.", settings, [router, models_router]
    )
    install(app, profile, settings)
    return app


def install(app: FastAPI, profile: ModelProfile, settings: DerenderSettings) -> None:
    """Puts into `app.state` what `routes.router` needs."""
    app.state.served = ServedModel.of(
        settings.model, settings.served_model_name, max_model_len=profile.max_model_len, profile=profile.fingerprint
    )
    app.state.derenderer = Derenderer.of(profile, app.state.served, max_logprobs=settings.max_logprobs)
    app.state.state_keys = StateKeys.of(settings.state_key)
    app.state.derender_metrics = DerenderMetrics(app.state.metrics)
