"""Rendering in a test: a renderer for any test tokenizer, and requests through the pure functions."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from model_profile.formats import Formats, detect
from model_profile.guest_template import GuestTemplates
from model_profile.template_budget import TemplateLimits
from render_service import anthropic, chat, completion, responses, tokenization
from render_service.control_tokens import ControlTokens
from render_service.guests import refused
from render_service.harmony import Harmony
from render_service.renderer import Renderer
from render_service.tokenizer_cache import TokenizerCache
from service_kit.models import ServedModel
from tests.tokenizers import profile


def renderer(
    family: str, *, name: str = "m", trust_templates: bool = True, allow_control_tokens: bool = False, **changes: Any
) -> Renderer:
    """For a test tokenizer; `changes` replace fields of its profile. gpt-oss is prompted in harmony."""
    cache = tokenizer_cache(family)
    if "tokenizer" in changes:
        cache = TokenizerCache(profile(family).tokenizer, control_tokens(family), 0)
    return Renderer(
        profile=replace(profile(family), **changes),
        model=ServedModel(name, name, 0),
        max_logprobs=20,
        guest_template=guests().template if trust_templates else refused,
        control_tokens=control_tokens(family),
        tokenizer_cache=cache,
        guards_control_tokens=not allow_control_tokens,
        harmony=harmony() if family == "gptoss" else None,
        formats=formats(family),
    )


@cache
def formats(family: str) -> Formats:
    template = profile(family).chat_template
    return detect(template and template.text, profile(family).tokenizer)


@cache
def tokenizer_cache(family: str) -> TokenizerCache:
    return TokenizerCache(profile(family).tokenizer, control_tokens(family), 2**24)


@cache
def control_tokens(family: str) -> ControlTokens:
    return ControlTokens(profile(family).tokenizer)


@cache
def guests() -> GuestTemplates:
    """The processes are shared by all tests of a process, which starts them once."""
    return GuestTemplates(TemplateLimits(), 2)


@cache
def harmony() -> Harmony:
    return Harmony.of(profile("gptoss").tokenizer)


def render_chat(render: Renderer, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(chat.render(render, json.dumps(request).encode(), "id"))
    return answer


def render_messages(render: Renderer, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(anthropic.render(render, json.dumps(request).encode(), "id"))
    return answer


def render_responses(render: Renderer, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(responses.render(render, json.dumps(request).encode(), "id"))
    return answer


def render_completion(render: Renderer, **request: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(completion.render(render, json.dumps(request).encode(), "id"))
    return answer


def say(text: str, **request: Any) -> dict[str, Any]:
    """A chat request with one user message."""
    return {"messages": [{"role": "user", "content": text}], **request}


ENDPOINTS: dict[str, Callable[[Renderer, bytes], bytes]] = {
    "/v1/chat/completions/render": lambda render, body: chat.render(render, body, "id"),
    "/v1/messages/render": lambda render, body: anthropic.render(render, body, "id"),
    "/v1/responses/render": lambda render, body: responses.render(render, body, "id"),
    "/v1/completions/render": lambda render, body: completion.render(render, body, "id"),
    "/tokenize": tokenization.tokenize,
    "/detokenize": tokenization.detokenize,
}
