"""The render service's settings and app."""

from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI
from pydantic import Field

from model_profile import ModelProfile, load
from model_profile.formats import detect
from model_profile.harmony_vocabulary import speaks_harmony
from render_service.control_tokens import ControlTokens
from render_service.piece_cache import PieceCache
from render_service.renderer import Renderer
from render_service.routes import router
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
        False, description="Render with chat templates that requests bring. They are programs: only for clients that you trust."
    )
    allow_control_tokens_in_text: bool = Field(
        False, description="Let text in chats that spells a control token (<|im_end|>, <think>) become that token."
    )
    tokenizer_cache_mib: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        64, description="Memory, in MiB and for each process, to keep the ids of texts in that were tokenized before; 0 keeps none."
    )


def create_app(settings: RenderSettings) -> FastAPI:
    """Loads the model's text side and builds the app. Raises `model_profile.ProfileError` when that fails."""
    profile = load(settings.model, chat_template=settings.chat_template, max_model_len=settings.max_model_len)
    app = build_app("render", DESCRIPTION, settings, [router, models_router])
    install(app, profile, settings)
    return app


def install(app: FastAPI, profile: ModelProfile, settings: RenderSettings) -> None:
    """Puts into `app.state` what `routes.router` and the listing of models need."""
    app.state.served = ServedModel.of(
        settings.model, settings.served_model_name, max_model_len=profile.max_model_len, profile=profile.fingerprint
    )
    harmony = None if settings.chat_template else _harmony(profile)
    control_tokens, guards = ControlTokens(profile.tokenizer), not settings.allow_control_tokens_in_text
    if guards and harmony is None:
        control_tokens.prepare()
    app.state.renderer = Renderer(
        profile=profile,
        model=app.state.served,
        max_logprobs=settings.max_logprobs,
        trust_templates=settings.trust_request_chat_template,
        control_tokens=control_tokens,
        pieces=_pieces(app.state.metrics, profile, control_tokens, settings),
        guards_control_tokens=guards,
        harmony=harmony,
        formats=detect(profile.chat_template.text if profile.chat_template else None, profile.tokenizer),
    )


def _pieces(metrics: Metrics, profile: ModelProfile, control_tokens: ControlTokens, settings: RenderSettings) -> PieceCache:
    characters = metrics.counter(
        "tokenizer_cache_characters", "Characters of prompts, by whether their ids were known.", ("known",)
    )
    known_before, new_now = characters.labels("yes"), characters.labels("no")

    def counted(known: int, new: int) -> None:
        known_before.inc(known)
        new_now.inc(new)

    return PieceCache(profile.tokenizer, control_tokens, settings.tokenizer_cache_mib * MIB, counted=counted)


def _harmony(profile: ModelProfile) -> "Harmony | None":
    """For gpt-oss; a --chat-template wins over it. The library is imported only for models that need it."""
    if not speaks_harmony(profile.tokenizer):
        return None
    from render_service.harmony import Harmony

    return Harmony.of(profile.tokenizer)
