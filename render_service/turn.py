"""A turn that is asked for: what each request shape with a conversation is turned into, and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_profile.formats import Formats
from protocol.errors import BadRequest
from protocol.generate import StreamOptions
from protocol.parse_context import ParseContext
from protocol.requests import CommonRequest, GenerationRequest
from protocol.tools import ToolChoice
from render_service import sampling
from render_service.answer import generate_request
from render_service.conversation import Conversation
from render_service.prompt import room, truncation
from render_service.renderer import Renderer
from render_service.structure import constraint
from render_service.writing import Wanted, write


@dataclass(frozen=True)
class Turn:
    """A conversation, and how what comes next is to be generated.

    `top_logprobs`: how many alternatives each token is to have; None is for no logprobs at all. `names` are for errors: what the
    request calls the fields that a chat request calls otherwise.
    """

    conversation: Conversation
    asked: GenerationRequest
    parse: ParseContext
    tool_choice: ToolChoice | None = None
    top_logprobs: int | None = None
    add_special_tokens: bool = False
    token_sources: bool = False
    names: Mapping[str, str] = field(default_factory=dict)


def generation(request: CommonRequest, **own: Any) -> GenerationRequest:
    """The fields of a request that is no chat request: those that all have, and its `own` under the names that a chat request has
    for them. Streams of the other APIs end with the usage unasked."""
    common = {name: getattr(request, name) for name in CommonRequest.model_fields}
    usage = StreamOptions(include_usage=True) if request.stream else None
    return GenerationRequest.model_validate({**common, "stream_options": usage, **own})


def answer(renderer: Renderer, turn: Turn, prefix: str, request_id: str) -> bytes:
    """The JSON of the turn's generate request. Raises `BadRequest` that names the field, `NotFound` for another model."""
    renderer.model.check(turn.asked.model)
    try:
        return _answer(renderer, turn, f"{prefix}{turn.asked.request_id or request_id}")
    except BadRequest as error:
        raise _in_own_words(error, turn.names) from error


def _answer(renderer: Renderer, turn: Turn, answer_id: str) -> bytes:
    profile, asked, conversation = renderer.profile, turn.asked, turn.conversation
    one_call = not turn.parse.parallel_tool_calls
    structure = constraint(asked, conversation.tools or (), turn.tool_choice, one_call=one_call)
    plain = not conversation.tools and renderer.formats == Formats()
    params = sampling.for_turn(renderer, asked, top_logprobs=turn.top_logprobs, structure=structure, plain=plain)
    wanted = Wanted(
        add_special_tokens=turn.add_special_tokens,
        cut=truncation(profile, asked, asked.max_tokens),
        offsets=bool(asked.return_token_offsets),
        sources=turn.token_sources,
    )
    prompt = write(renderer, conversation, wanted)
    default = profile.generation_defaults.get("max_tokens")
    max_tokens = room(profile, prompt, where="messages", asked=asked.max_tokens, default=default)
    return generate_request(renderer, asked, prompt, answer_id, turn.parse, sampling.within(params, max_tokens)).wire()


def _in_own_words(error: BadRequest, names: Mapping[str, str]) -> BadRequest:
    own = names.get(error.param or "")
    return BadRequest(f"{own}: {error.message.removeprefix(f'{error.param}: ')}", param=own) if own else error
