"""Render and derender on one port: the stand-in for vLLM's render server (`vllm launch render`)."""

from typing import Annotated

from fastapi import FastAPI
from pydantic import Field

from derender_service import app as derender
from derender_service import routes as derender_routes
from derender_service.app import DerenderSettings
from model_profile import load
from render_service import app as render
from render_service import routes as render_routes
from render_service.app import RenderSettings
from service_kit.app import build_app
from service_kit.models import models_router

DESCRIPTION = "OpenAI requests to token ids, and token ids to OpenAI answers."


class TextSettings(RenderSettings, DerenderSettings):
    """Both services' settings."""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(8004, description="Port to listen on; 0 takes a free one.")


def create_app(settings: TextSettings) -> FastAPI:
    """Loads the model's text side once for both. Raises one of derender's `REFUSALS` when that fails."""
    profile = load(
        settings.model,
        chat_template=settings.chat_template,
        max_model_len=settings.max_model_len,
        template_limits=settings.template_limits,
    )
    routers = [render_routes.router, derender_routes.router, models_router]
    app = build_app("text", DESCRIPTION, settings, routers, lifespan=render.lifespan)
    render.install(app, profile, settings)
    derender.install(app, profile, settings)
    return app
