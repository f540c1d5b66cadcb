"""From a request's fields to the worker's sampling parameters. What cannot be honoured is refused by name, never dropped.

Stop strings are not among them: the worker knows no text, so derender watches for them.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from model_profile import ModelProfile
from protocol.completion import CompletionRequest
from protocol.errors import BadRequest, invalid
from protocol.requests import GenerationRequest
from protocol.sampling import SamplingParams
from render_service.prompt import check_ids
from render_service.renderer import Renderer

_UNSUPPORTED = (
    "bad_words",
    "prompt_logprobs",
    "logprob_token_ids",
    "use_beam_search",
    "thinking_token_budget",
    "repetition_detection",
    "structured_outputs",
    "vllm_xargs",
)


def for_turn(renderer: Renderer, request: GenerationRequest, max_tokens: int, top_logprobs: int | None) -> SamplingParams:
    """`top_logprobs`: None is for no logprobs at all. Raises `BadRequest` that names the field."""
    return _params(renderer, request, max_tokens, _logprobs(renderer, top_logprobs, "top_logprobs"))


def for_completion(renderer: Renderer, request: CompletionRequest, max_tokens: int) -> SamplingParams:
    """Raises `BadRequest` that names the field."""
    if request.suffix:
        raise unsupported("suffix")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise BadRequest(
            "best_of: only as many answers are made as are returned; leave it out, or give it the value of n", param="best_of"
        )
    if request.echo and request.logprobs is not None:
        raise BadRequest("echo: logprobs of an echoed prompt are not supported; leave out one of the two", param="echo")
    return _params(renderer, request, max_tokens, _logprobs(renderer, request.logprobs, "logprobs"))


def _params(renderer: Renderer, request: GenerationRequest, max_tokens: int, logprobs: int | None) -> SamplingParams:
    profile = renderer.profile
    for name in _UNSUPPORTED:
        value = getattr(request, name)
        # Asking for nothing is fine; 0 asks for something.
        if value is not None and value is not False and value not in ([], {}):
            raise unsupported(name)
    if request.length_penalty != 1.0:
        raise unsupported("length_penalty")
    if request.response_format is not None and request.response_format.get("type") != "text":
        raise BadRequest('response_format: only {"type": "text"} is supported', param="response_format")
    asked: dict[str, Any] = {
        "n": request.n,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "max_tokens": max_tokens,
        "min_tokens": request.min_tokens,
        "stop_token_ids": _stop_token_ids(renderer, request),
        "ignore_eos": request.ignore_eos,
        "include_stop_str_in_output": request.include_stop_str_in_output,
        "skip_special_tokens": request.skip_special_tokens,
        "spaces_between_special_tokens": request.spaces_between_special_tokens,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "repetition_penalty": request.repetition_penalty,
        "logit_bias": _logit_bias(profile, request.logit_bias),
        "allowed_token_ids": _allowed(profile, request.allowed_token_ids),
        "logprobs": logprobs,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        return SamplingParams.model_validate({**profile.generation_defaults, **given})
    except ValidationError as error:
        raise invalid(error) from error


def _stop_token_ids(renderer: Renderer, request: GenerationRequest) -> list[int] | None:
    """The client's ids and every eos id: a worker that sees only ids knows no eos of its own. In harmony a call ends a turn too."""
    asked = request.stop_token_ids or []
    check_ids(renderer.profile, asked, "stop_token_ids")
    ends = (*renderer.profile.eos_token_ids, *(renderer.harmony.stop_ids if renderer.harmony else ()))
    return list(dict.fromkeys([*asked, *(() if request.ignore_eos else ends)])) or None


def _logit_bias(profile: ModelProfile, bias: Mapping[str, float] | None) -> dict[int, float] | None:
    if not bias:
        return None
    for key in bias:
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) < profile.vocab_size):
            raise BadRequest(
                f"logit_bias: {key[:40]!r} is no token id of this model, whose ids are below {profile.vocab_size}",
                param="logit_bias",
            )
    return {int(key): value for key, value in bias.items()}


def _allowed(profile: ModelProfile, ids: list[int] | None) -> list[int] | None:
    if ids is not None and not ids:
        raise BadRequest("allowed_token_ids: with no allowed token nothing can be generated", param="allowed_token_ids")
    check_ids(profile, ids or [], "allowed_token_ids")
    return ids


def _logprobs(renderer: Renderer, wanted: int | None, where: str) -> int | None:
    bound = renderer.max_logprobs
    if wanted is not None and not 0 <= wanted <= bound:
        raise BadRequest(f"{where}: {wanted} is outside this server's bounds of 0 to {bound}", param=where)
    return wanted


def unsupported(name: str) -> BadRequest:
    return BadRequest(f"{name}: this parameter is not supported", param=name)
