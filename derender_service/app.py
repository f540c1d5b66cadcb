"""The derender service: settings and app."""

import logging
from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI
from pydantic import AfterValidator, Field, SecretStr

from derender_service.derenderer import Derenderer
from derender_service.metrics import DerenderMetrics
from derender_service.parsers.parsing import UnknownParser, parsing_for
from derender_service.parsers.plugins import BrokenPlugin, Plugin, plugins
from derender_service.routes import router
from derender_service.signing import StateKeys, check_keys
from model_profile.errors import ProfileError
from model_profile.formats import Formats, detect
from model_profile.profile import ModelProfile, load
from service_kit.app import build_app
from service_kit.models import ServedModel, models_router
from service_kit.settings import ModelSettings

log = logging.getLogger("tandem.derender")

REFUSALS = (ProfileError, UnknownParser, BrokenPlugin)
"""What building the app raises when the settings cannot be served."""


class DerenderSettings(ModelSettings):
    """Settings of `tandem derender`."""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(8003, description="Port to listen on; 0 takes a free one.")
    max_logprobs: Annotated[int, Field(ge=0)] = Field(20, description="Most alternatives a token may have in logprobs.")
    reasoning_parser: str | None = Field(
        None, description="Format of the model's reasoning, by vLLM's name; by default told by the model, `none` for none."
    )
    tool_call_parser: str | None = Field(
        None, description="Format of the model's tool calls, by vLLM's name; by default told by the model, `none` for none."
    )
    enable_auto_tool_choice: bool = Field(True, description="Tools that a request merely offers may be called.")
    reasoning_content: bool = Field(False, description="Send reasoning as `reasoning_content` too, the field's older name.")
    state_key: Annotated[SecretStr, AfterValidator(check_keys)] | None = Field(
        None, description="Signs stream states; the same at every replica. With commas between: the first signs, all verify."
    )


def create_app(settings: DerenderSettings) -> FastAPI:
    """Loads the model's text side and builds the app. Raises one of `REFUSALS` when that fails."""
    profile = load(settings.model, chat_template=settings.chat_template, max_model_len=settings.max_model_len)
    app = build_app(
        "derender", "Token ids to OpenAI answers: whole, or a chunk of a stream at a time.", settings, [router, models_router]
    )
    install(app, profile, settings)
    return app


def install(app: FastAPI, profile: ModelProfile, settings: DerenderSettings) -> None:
    """Puts into `app.state` what `routes.router` needs. Raises one of `REFUSALS`."""
    formats = chosen(profile, settings.reasoning_parser, settings.tool_call_parser)
    app.state.served = ServedModel.of(
        settings.model,
        settings.served_model_name,
        max_model_len=profile.max_model_len,
        profile=profile.fingerprint,
        formats=asdict(formats),
    )
    app.state.derenderer = Derenderer.of(
        profile,
        app.state.served,
        max_logprobs=settings.max_logprobs,
        parsing=parsing_for(profile.tokenizer, formats.reasoning_parser, formats.tool_call_parser),
        auto_tool_choice=settings.enable_auto_tool_choice,
        older_reasoning_field=settings.reasoning_content,
    )
    log.info("reasoning parser: %s, tool call parser: %s", formats.reasoning_parser or "none", formats.tool_call_parser or "none")
    app.state.state_keys = StateKeys.of(settings.state_key)
    app.state.derender_metrics = DerenderMetrics(app.state.metrics)


def chosen(profile: ModelProfile, reasoning_parser: str | None, tool_call_parser: str | None) -> Formats:
    """The flags' formats; where a flag is not given, the one that the model shows."""
    seen = detect(profile.chat_template.text if profile.chat_template else None, profile.tokenizer)
    given = {reasoning_parser, tool_call_parser} - {None, "", "none"}
    harmony = bool({"openai_gptoss", "openai"} & {seen.reasoning_parser, seen.tool_call_parser, *given})
    # Harmony is one format, and so is what a plug-in of code reads: where one half is given, the other cannot be another format's.
    other = harmony and given - {"openai_gptoss", "openai"}
    told = Formats() if other or any(isinstance(plugins().get(name or ""), Plugin) for name in given) else seen
    return Formats(_flag(reasoning_parser, told.reasoning_parser), _flag(tool_call_parser, told.tool_call_parser))


def _flag(given: str | None, seen: str | None) -> str | None:
    return (given or seen) if given != "none" else None
