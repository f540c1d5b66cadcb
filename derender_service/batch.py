"""Whole generate answers, derendered: each choice is one chunk of the same machine that reads streams (law L2)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from derender_service.answers import chat_choice, completion_choice
from derender_service.choice import Advance, advance
from derender_service.derenderer import Derenderer
from derender_service.opening import context_of, echoed
from derender_service.states import begun, opened
from protocol.base import JsonObject
from protocol.chat import ChatCompletion
from protocol.completion import Completion, CompletionChoice
from protocol.derender import DerenderChatRequest, DerenderCompletionRequest, DerenderContext
from protocol.errors import BadRequest
from protocol.generate import GenerateChoice, GenerateResponse
from protocol.sampling import MAX_CHOICES
from protocol.usage import CompletionTokensDetails, Usage

MAX_REPEATED = 2**25
"""Ids and characters: the prompts that an answer repeats with its choices."""


@dataclass(frozen=True)
class _Source:
    """One generate answer and what the caller said beside it. `where` is its path in the request, for error messages."""

    response: GenerateResponse
    prompt_token_ids: list[int] | None
    prompt_tokens: int
    where: str


def derender_chat(derenderer: Derenderer, request: DerenderChatRequest) -> ChatCompletion:
    """Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    derenderer.check_profile(request.profile)
    response = request.generate_response
    told = request.told
    derenderer.check_parsable(chat_request=told, prompt_token_ids=None, prompt_needed=False)
    source = _source(derenderer, response, request.prompt_token_ids, request.prompt_tokens, "generate_response", "prompt_token_ids")
    context = context_of(derenderer, told, source.prompt_tokens)
    prefix = echoed(derenderer, told, source.prompt_token_ids)
    parsed = derenderer.as_told(request.chat_request or told) if derenderer.parsing is not None else None
    _check_repeated(len(prefix) * len(response.choices), f"{source.where}.choices")
    steps = list(_steps(derenderer, source, context, prefix, parsed))
    return ChatCompletion(
        id=response.request_id,
        created=_created(response, request.created),
        model=model,
        choices=[chat_choice(derenderer, context, response.request_id, c.index, step, prefix=prefix) for c, step in steps],
        usage=_usage([response], source.prompt_tokens, [step for _, step in steps], parsed=parsed is not None),
        prompt_token_ids=source.prompt_token_ids if context.return_token_ids else None,
        timings=response.timings,
    )


def derender_completion(derenderer: Derenderer, request: DerenderCompletionRequest) -> Completion:
    """Choices are numbered on from prompt to prompt. Raises `BadRequest`, `NotFound` or `ProfileMismatch`."""
    model = derenderer.served.check(request.model)
    derenderer.check_profile(request.profile)
    responses, told = request.generate_responses, request.told
    choices: list[CompletionChoice] = []
    steps: list[Advance] = []
    prompt_tokens = repeated = 0
    for place, response in enumerate(responses):
        ids = request.prompt_token_ids[place] if request.prompt_token_ids else None
        count = request.prompt_tokens[place] if request.prompt_tokens else None
        source = _source(derenderer, response, ids, count, f"generate_responses.{place}", f"prompt_token_ids.{place}")
        context = context_of(derenderer, told, source.prompt_tokens)
        prefix = echoed(derenderer, told, source.prompt_token_ids)
        prompt_tokens += source.prompt_tokens
        returned = (source.prompt_token_ids or ()) if context.return_token_ids else ()
        repeated += len(response.choices) * (len(prefix) + len(returned))
        _check_repeated(repeated, f"{source.where}.choices")
        for _, step in _steps(derenderer, source, context, prefix, None):
            prompt = source.prompt_token_ids
            choices.append(completion_choice(derenderer, context, len(choices), step, prefix=prefix, prompt_token_ids=prompt))
            steps.append(step)
    return Completion(
        id=responses[0].request_id,
        created=_created(responses[0], request.created),
        model=model,
        choices=choices,
        usage=_usage(responses, prompt_tokens, steps, parsed=False),
        timings=responses[0].timings if len(responses) == 1 else None,
    )


def _source(
    derenderer: Derenderer, response: GenerateResponse, ids: list[int] | None, count: int | None, where: str, ids_param: str
) -> _Source:
    prompt = ids if ids is not None else response.prompt_token_ids
    derenderer.check_ids(prompt, ids_param)
    derenderer.check_length(len(prompt or ()), ids_param)
    if len(response.choices) > MAX_CHOICES:
        message = f"{len(response.choices)} choices, but an answer has {MAX_CHOICES} at most (n)"
        raise BadRequest(message, param=f"{where}.choices")
    if count is None:
        told = response.usage.prompt_tokens if response.usage else 0
        count = len(prompt) if prompt is not None else told
    return _Source(response, prompt, count, where)


def _steps(
    derenderer: Derenderer, source: _Source, context: DerenderContext, prefix: str, chat_request: JsonObject | None
) -> Iterator[tuple[GenerateChoice, Advance]]:
    state = opened(derenderer, context, source.prompt_token_ids, created=0, prefix=prefix, chat_request=chat_request)
    start = begun(derenderer, context, state)
    for place, choice in enumerate(source.response.choices):
        where = f"{source.where}.choices.{place}"
        derenderer.check_ids(choice.token_ids, f"{where}.token_ids")
        derenderer.check_logprobs(choice.logprobs, f"{where}.logprobs")
        derenderer.check_length(source.prompt_tokens + len(choice.token_ids or ()), f"{where}.token_ids")
        step, _, _ = advance(start, derenderer.eos_token_ids, state, context, choice, last=True)
        yield choice, step


def _check_repeated(count: int, param: str) -> None:
    """Refuses a small body that asks for a huge answer: each choice repeats its prompt. `count`: ids and characters of prompts."""
    if count > MAX_REPEATED:
        message = f"each choice repeats its prompt, and that makes more than {MAX_REPEATED} ids and characters: send fewer at once"
        raise BadRequest(message, param=param)


def _created(response: GenerateResponse, given: int | None) -> int:
    created = response.created if response.created is not None else given
    return created if created is not None else int(time.time())


def _usage(responses: list[GenerateResponse], prompt: int, steps: list[Advance], *, parsed: bool) -> Usage:
    """Counts of what the answer stands for: output ids up to the one that ended each choice."""
    usage = Usage.of(prompt, sum(len(step.token_ids) for step in steps))
    if parsed:
        usage.completion_tokens_details = CompletionTokensDetails(reasoning_tokens=sum(step.reasoning_tokens for step in steps))
    cached = [r.usage.prompt_tokens_details for r in responses if r.usage and r.usage.prompt_tokens_details]
    return usage.model_copy(update={"prompt_tokens_details": cached[0]}) if len(responses) == 1 and cached else usage
