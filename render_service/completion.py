"""`/v1/completions/render`: texts or ids, one generate request for each prompt."""

from collections.abc import Iterator

from protocol.completion import CompletionRequest
from protocol.generate import GenerateRequest
from protocol.parse_context import ParseContext
from protocol.sampling import SamplingParams
from render_service import refusals, sampling
from render_service.answer import generate_request
from render_service.prompt import from_ids, from_text, room, truncation
from render_service.refusals import refuse
from render_service.renderer import Renderer
from service_kit.body import WORDS, parse


def render(renderer: Renderer, body: bytes, request_id: str) -> bytes:
    """A completion request's JSON -> a JSON list of generate requests, in the order of the prompts.

    Raises `BadRequest` that names the field, `NotFound` for another model.
    """
    request = parse(CompletionRequest, body, WORDS)
    renderer.model.check(request.model)
    refuse(request, refusals.COMPLETION)
    params = sampling.for_completion(renderer, request)
    base = f"cmpl-{request.request_id or request_id}"
    prompts = list(_prompts(request))
    ids = [base] if len(prompts) == 1 else [f"{base}-{index}" for index in range(len(prompts))]
    answers = [_one(renderer, request, params, *prompt, own_id).wire() for prompt, own_id in zip(prompts, ids, strict=True)]
    return b"[" + b",".join(answers) + b"]"


def _prompts(request: CompletionRequest) -> Iterator[tuple[str | list[int], str]]:
    """Each prompt, and where it stands in the request."""
    prompt = request.prompt
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        yield prompt, "prompt"
        return
    items: list[str | list[int]] = [*prompt]
    for index, item in enumerate(items):
        yield item, f"prompt.{index}"


def _one(
    renderer: Renderer, request: CompletionRequest, params: SamplingParams, given: str | list[int], where: str, request_id: str
) -> GenerateRequest:
    profile = renderer.profile
    asked = request.max_tokens if "max_tokens" in request.model_fields_set else None
    cut = truncation(profile, request, request.max_tokens)
    if isinstance(given, str):
        prompt = from_text(
            renderer,
            given,
            where=where,
            add_special_tokens=request.add_special_tokens,
            cut=cut,
            with_offsets=bool(request.return_token_offsets),
        )
    else:
        prompt = from_ids(profile, given, where=where, cut=cut)
    max_tokens = room(profile, prompt, where=where, asked=asked, default=request.max_tokens)
    parse_context = ParseContext.of_completion(request)
    return generate_request(renderer, request, prompt, request_id, parse_context, sampling.within(params, max_tokens))
