"""From a request's fields to the worker's sampling parameters. What cannot be honoured is refused by name, never dropped.

Stop strings are not among them: the worker knows no text, so derender watches for them. Those that are one token are handed to the
worker as that token, where it is exact.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from model_profile import ModelProfile
from protocol.completion import CompletionRequest
from protocol.errors import BadRequest, invalid
from protocol.requests import GenerationRequest
from protocol.sampling import MAX_STOP_TOKEN_IDS, SamplingParams
from render_service.encoding import encode
from render_service.prompt import check_ids
from render_service.renderer import Renderer
from render_service.structure import constraint

JsonObject = dict[str, Any]


def for_turn(
    renderer: Renderer, request: GenerationRequest, *, top_logprobs: int | None, structure: JsonObject | None, plain: bool
) -> SamplingParams:
    """All but how many tokens there is room for. `top_logprobs`: None is for no logprobs at all. `structure`: the constraint that
    the request comes to. `plain`: the output is read as text and nothing else. Raises `BadRequest` that names the field."""
    if renderer.harmony is not None and structure is not None:
        formatted = request.response_format is not None and request.response_format.get("type") != "text"
        where = "structured_outputs" if request.structured_outputs else "response_format" if formatted else "tool_choice"
        raise BadRequest(f"{where}: the output of this model is always in harmony, and can have no other form", param=where)
    return _params(renderer, request, _logprobs(renderer, top_logprobs, "top_logprobs"), structure, plain=plain)


def for_completion(renderer: Renderer, request: CompletionRequest) -> SamplingParams:
    """All but how many tokens there is room for. Raises `BadRequest` that names the field."""
    if request.suffix:
        raise BadRequest("suffix: this parameter is not supported", param="suffix")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise BadRequest(
            "best_of: only as many answers are made as are returned; leave it out, or give it the value of n", param="best_of"
        )
    if request.echo and request.logprobs is not None:
        raise BadRequest("echo: logprobs of an echoed prompt are not supported; leave out one of the two", param="echo")
    logprobs = _logprobs(renderer, request.logprobs, "logprobs")
    return _params(renderer, request, logprobs, constraint(request, (), None), plain=True)


def within(params: SamplingParams, max_tokens: int) -> SamplingParams:
    """The same for an output of at most `max_tokens`. Raises `BadRequest`."""
    if params.min_tokens > max_tokens:
        message = f"min_tokens: {params.min_tokens} tokens at least are asked for, and there is room for {max_tokens}"
        raise BadRequest(message, param="min_tokens")
    return params.model_copy(update={"max_tokens": max_tokens})


def _params(
    renderer: Renderer, request: GenerationRequest, logprobs: int | None, structure: JsonObject | None, *, plain: bool
) -> SamplingParams:
    profile = renderer.profile
    asked: dict[str, Any] = {
        "n": request.n,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "min_tokens": request.min_tokens,
        "stop_token_ids": _stop_token_ids(renderer, request, plain=plain),
        "ignore_eos": request.ignore_eos,
        "include_stop_str_in_output": request.include_stop_str_in_output,
        "skip_special_tokens": request.skip_special_tokens,
        "spaces_between_special_tokens": request.spaces_between_special_tokens,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "repetition_penalty": request.repetition_penalty,
        "logit_bias": _logit_bias(profile, request.logit_bias),
        "allowed_token_ids": _allowed(profile, request.allowed_token_ids),
        "bad_words_token_ids": _bad_words(profile, request.bad_words),
        "logprobs": logprobs,
        "structured_outputs": structure,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        return SamplingParams.model_validate({**profile.generation_defaults, **given})
    except ValidationError as error:
        raise invalid(error) from error


def _stop_token_ids(renderer: Renderer, request: GenerationRequest, *, plain: bool) -> list[int] | None:
    """The client's ids and every eos id: a worker that sees only ids knows no eos of its own. In harmony a call ends a turn too.

    Raises `BadRequest` where these are more than a worker takes. (Stop strings are derender's to find in any case.)"""
    asked = request.stop_token_ids or []
    check_ids(renderer.profile, asked, "stop_token_ids")
    ends = () if request.ignore_eos else (*renderer.profile.eos_token_ids, *(renderer.harmony.stop_ids if renderer.harmony else ()))
    # Before min_tokens a stop string is merely not looked for, but a stop token is not sampled.
    spelled = _single_tokens(renderer, request.stop_strings) if plain and not request.min_tokens else ()
    needed = dict.fromkeys([*asked, *ends])
    if len(needed) > MAX_STOP_TOKEN_IDS:
        raise BadRequest(
            f"stop_token_ids: with those that end the model's turns they are {len(needed)}, and a worker takes no more than "
            f"{MAX_STOP_TOKEN_IDS}",
            param="stop_token_ids",
        )
    return [*(needed | dict.fromkeys(spelled))][:MAX_STOP_TOKEN_IDS] or None


def _single_tokens(renderer: Renderer, stop: Sequence[str]) -> Iterator[int]:
    """The tokens that are a stop string, each alone: at such a one the worker stops by itself. (Derender still looks for the
    strings: other tokens spell them too.) Where a token is some bytes, whatever stands beside it, that is exact."""
    tokenizer = renderer.profile.tokenizer
    for text in stop if stop and renderer.profile.byte_level else ():
        ids = encode(tokenizer, text, add_special_tokens=False).ids
        if len(ids) == 1 and ids[0] not in renderer.control_tokens.ids and tokenizer.decode(ids) == text:
            yield ids[0]


def _bad_words(profile: ModelProfile, words: Sequence[str] | None) -> list[list[int]] | None:
    """The ids that spell each word, at the beginning of a text and after a space, where that is another token."""
    sequences: list[list[int]] = []
    for index, word in enumerate(words or ()):
        bare = word.lstrip()
        if not bare:
            raise BadRequest(f"bad_words.{index}: must not be empty", param=f"bad_words.{index}")
        alone, spaced = (encode(profile.tokenizer, text, add_special_tokens=False).ids for text in (bare, f" {bare}"))
        sequences += [alone] if spaced[0] == alone[0] or len(spaced) != len(alone) else [alone, spaced]
    return sequences or None


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
