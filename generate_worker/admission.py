"""What is let in: a wire request becomes an `EngineRequest`, or a 400 or 404 that names what is wrong with it.

A parameter that is not served is refused by name. Ignored are only fields that have no bearing on which tokens come out: those
about text (`skip_special_tokens`, `include_stop_str_in_output`, …: derender's), `token_offsets` and `profile` (they travel for
derender) and `stream_options` (every stream tells its usage, and every event its count).
"""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generate_worker.engine.base import EngineRequest, Grammar
from generate_worker.stop_tokens import StopTokens
from protocol.errors import BadRequest, NotFound
from protocol.generate import GenerateRequest
from protocol.sampling import SamplingParams
from service_kit import context

if TYPE_CHECKING:
    from generate_worker.structure import Structures

_SEED_BITS = 53
"""Drawn seeds survive a JSON reader that keeps numbers as doubles."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The model's bounds and this server's. `max_logprobs` -1 is no bound, `structures` None refuses structured outputs."""

    model_name: str
    vocab_size: int
    max_model_len: int
    stop_tokens: StopTokens
    max_choices: int
    max_logprobs: int
    structures: "Structures | None" = None


@dataclass(frozen=True, slots=True)
class Call:
    """An admitted request, and how its answer is to be written."""

    engine: EngineRequest
    created: int
    stream: bool
    echo_prompt: bool
    reported_seed: int | None
    """The seed, where the worker drew it."""


def admit(request: GenerateRequest, limits: Limits) -> Call:
    """Raises `BadRequest` or `NotFound`."""
    params = request.sampling_params
    if request.model is not None and request.model != limits.model_name:
        raise NotFound(f"The model `{request.model}` does not exist.", param="model")
    _refuse_unserved(request)
    _check_ids("token_ids", request.token_ids, limits)
    _check_ids("output_token_ids", request.output_token_ids or [], limits)
    _check_sampling(params, limits)
    room = limits.max_model_len - len(request.token_ids)
    if room <= 0:
        message = (
            f"the prompt has {len(request.token_ids)} tokens; the model's context of {limits.max_model_len} must leave room for one"
        )
        raise BadRequest(message, param="token_ids")
    eos = limits.stop_tokens
    own_stops = frozenset(params.stop_token_ids or ())
    seed = secrets.randbits(_SEED_BITS) if params.seed is None else params.seed
    own_id = context.request_id.get()
    engine = EngineRequest(
        request_id=request.request_id or (own_id if own_id != "-" else context.new_request_id()),
        prompt_ids=request.token_ids,
        params=params,
        seed=seed,
        max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
        stop_ids=own_stops | (frozenset() if params.ignore_eos else eos.all),
        late_ids=own_stops | eos.all,
        primary_eos=None if params.ignore_eos else eos.primary,
        resumed_ids=tuple(request.output_token_ids or ()),
        priority=request.priority,
        cache_salt=request.cache_salt,
        grammar=_grammar(request, limits),
    )
    _check_something_allowed(engine, limits)
    return Call(
        engine, int(time.time()), bool(request.stream), bool(request.return_token_ids), seed if params.seed is None else None
    )


def _refuse_unserved(request: GenerateRequest) -> None:
    params = request.sampling_params
    if params.stop:
        raise BadRequest("the worker has no tokenizer; stop strings are derender's", param="sampling_params.stop")
    if params.prompt_logprobs is not None and request.stream:
        raise BadRequest("prompt_logprobs come with a whole answer; leave out stream", param="sampling_params.prompt_logprobs")
    if params.bad_words:
        message = "the worker has no tokenizer; give bad_words_token_ids instead of bad_words"
        raise BadRequest(message, param="sampling_params.bad_words")
    for name in ("features", "content_parts", "kv_transfer_params", "ec_transfer_params"):
        if getattr(request, name):
            raise BadRequest(f"{name} is not supported by this worker", param=name)


def _grammar(request: GenerateRequest, limits: Limits) -> Callable[[], Grammar] | None:
    wanted = request.sampling_params.structured_outputs
    if not wanted:
        return None
    if limits.structures is None:
        message = "this worker knows no tokenizer, which structured_outputs needs; start it with --tokenizer-for-grammar"
        raise BadRequest(message, param="sampling_params.structured_outputs")
    resumed = request.output_token_ids or []
    return limits.structures.compile(wanted, request.token_ids, resumed, reasoning_ended=request.reasoning_ended)


def _check_ids(where: str, ids: Iterable[int], limits: Limits) -> None:
    for place, token_id in enumerate(ids):
        if token_id >= limits.vocab_size:
            message = f"{where}.{place}: {token_id} is no token id of the model, whose vocabulary has {limits.vocab_size}"
            raise BadRequest(message, param=f"{where}.{place}")


def _check_sampling(params: SamplingParams, limits: Limits) -> None:
    if params.n > limits.max_choices:
        raise BadRequest(f"n is {params.n}; this worker runs {limits.max_choices} choices at once", param="sampling_params.n")
    _check_logprobs("logprobs", params.logprobs, limits)
    _check_logprobs("prompt_logprobs", params.prompt_logprobs, limits)
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        raise BadRequest("allowed_token_ids must not be empty", param="sampling_params.allowed_token_ids")
    _check_ids("sampling_params.allowed_token_ids", params.allowed_token_ids or [], limits)
    for place, banned in enumerate(params.bad_words_token_ids or []):
        if not banned:
            raise BadRequest("a banned sequence must not be empty", param=f"sampling_params.bad_words_token_ids.{place}")
        _check_ids(f"sampling_params.bad_words_token_ids.{place}", banned, limits)
    for token_id in params.logit_bias or {}:
        if token_id >= limits.vocab_size:
            message = f"logit_bias: {token_id} is no token id of the model, whose vocabulary has {limits.vocab_size}"
            raise BadRequest(message, param=f"sampling_params.logit_bias.{token_id}")


def _check_logprobs(name: str, wanted: int | None, limits: Limits) -> None:
    most = limits.max_logprobs
    if wanted is None or most < 0:
        return
    if (limits.vocab_size if wanted < 0 else wanted) > most:
        asked = "all (-1)" if wanted < 0 else str(wanted)
        raise BadRequest(f"{name} is {asked}; this worker tells at most {most} (--max-logprobs)", param=f"sampling_params.{name}")


def _check_something_allowed(request: EngineRequest, limits: Limits) -> None:
    allowed = request.params.allowed_token_ids
    if request.params.min_tokens and allowed and request.late_ids.issuperset(allowed):
        message = "min_tokens excludes every id of allowed_token_ids: all of them are stopping tokens"
        raise BadRequest(message, param="sampling_params.min_tokens")
