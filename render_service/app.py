"""The render service's settings and app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI
from pydantic import Field

from model_profile import ModelProfile, load
from model_profile.formats import detect
from model_profile.harmony_vocabulary import speaks_harmony
from model_profile.template_budget import STANDARD, TemplateLimits
from render_service.control_tokens import ControlTokens
from render_service.guests import Guests, elsewhere, refused
from render_service.renderer import Renderer
from render_service.routes import router
from render_service.tokenizer_cache import TokenizerCache
from service_kit.app import build_app
from service_kit.metrics import Metrics
from service_kit.models import ServedModel, models_router
from service_kit.settings import MIB, ModelSettings

if TYPE_CHECKING:
    from render_service.harmony import Harmony

DESCRIPTION = "Turns requests of OpenAI's and Anthropic's APIs into prompt token ids. Stateless; needs no GPU."


class RenderSettings(ModelSettings):
    """How requests are rendered."""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(8001, description="Port to listen on; 0 takes a free one.")
    max_logprobs: Annotated[int, Field(ge=0)] = Field(20, description="Most alternatives a token may have in logprobs.")
    trust_request_chat_template: bool = Field(
        False, description="Render with chat templates that requests bring. They are programs, and run in processes of their own."
    )
    template_timeout: Annotated[float, Field(gt=0, le=600)] = Field(
        STANDARD.seconds, description="Seconds that a chat template may take."
    )
    template_max_chars: Annotated[int, Field(ge=1024)] = Field(
        STANDARD.characters, description="Most characters that a chat template may write."
    )
    template_max_mib: Annotated[int, Field(ge=16)] = Field(
        STANDARD.mib, description="Memory that a process may take which runs chat templates of requests, in MiB."
    )
    allow_control_tokens_in_text: bool = Field(
        False, description="Let text in chats that spells a control token (<|im_end|>, <think>) become that token."
    )
    tokenizer_cache_mib: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        64, description="Memory, in MiB and for each process, to keep the ids of texts in that were tokenized before; 0 keeps none."
    )

    @property
    def template_limits(self) -> TemplateLimits:
        return TemplateLimits(self.template_timeout, self.template_max_chars, self.template_max_mib)


def create_app(settings: RenderSettings) -> FastAPI:
    """Loads the model's text side and builds the app. Raises `model_profile.ProfileError` when that fails."""
    profile = load(
        settings.model,
        chat_template=settings.chat_template,
        max_model_len=settings.max_model_len,
        template_limits=settings.template_limits,
    )
    app = build_app("render", DESCRIPTION, settings, [router, models_router], lifespan=lifespan)
    install(app, profile, settings)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Ends with the service what `install` put there."""
    yield
    app.state.guests.close()


def install(app: FastAPI, profile: ModelProfile, settings: RenderSettings) -> None:
    """Puts into `app.state` what `routes.router` and the listing of models need."""
    app.state.served = ServedModel.of(
        settings.model, settings.served_model_name, max_model_len=profile.max_model_len, profile=profile.fingerprint
    )
    harmony = None if settings.chat_template else _harmony(profile)
    control_tokens, guards = ControlTokens(profile.tokenizer), not settings.allow_control_tokens_in_text
    if guards and harmony is None:
        control_tokens.prepare()
    app.state.guests = Guests(settings.template_limits, settings.processes)
    app.state.renderer = Renderer(
        profile=profile,
        model=app.state.served,
        max_logprobs=settings.max_logprobs,
        guest_template=elsewhere if settings.trust_request_chat_template else refused,
        control_tokens=control_tokens,
        tokenizer_cache=_tokenizer_cache(app.state.metrics, profile, control_tokens, settings),
        guards_control_tokens=guards,
        harmony=harmony,
        formats=detect(profile.chat_template.text if profile.chat_template else None, profile.tokenizer),
    )


def _tokenizer_cache(
    metrics: Metrics, profile: ModelProfile, control_tokens: ControlTokens, settings: RenderSettings
) -> TokenizerCache:
    told = "Characters of prompts, by whether their ids were known."
    characters = metrics.counter("tokenizer_cache_characters", told, ("known",))
    known_before, new_now = characters.labels("yes"), characters.labels("no")

    def counted(known: int, new: int) -> None:
        known_before.inc(known)
        new_now.inc(new)

    return TokenizerCache(profile.tokenizer, control_tokens, settings.tokenizer_cache_mib * MIB, counted=counted)


def _harmony(profile: ModelProfile) -> "Harmony | None":
    """For gpt-oss; a --chat-template wins over it. The library is imported only for models that need it."""
    if not speaks_harmony(profile.tokenizer):
        return None
    from render_service.harmony import Harmony

    return Harmony.of(profile.tokenizer)
