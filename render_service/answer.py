"""What render answers, whatever the shape of the request."""

from protocol.base import MAX_REQUEST_ID
from protocol.errors import BadRequest
from protocol.generate import GenerateRequest
from protocol.parse_context import ParseContext
from protocol.requests import GenerationRequest
from protocol.sampling import SamplingParams
from render_service.prompt import Prompt
from render_service.renderer import Renderer


def generate_request(
    renderer: Renderer,
    request: GenerationRequest,
    prompt: Prompt,
    request_id: str,
    parse: ParseContext,
    sampling_params: SamplingParams,
) -> GenerateRequest:
    """The generate request of one prompt. Raises `BadRequest` for an id that is too long for an answer's."""
    if len(request_id) > MAX_REQUEST_ID:
        raise BadRequest(f"request_id: as the answer's it would be longer than {MAX_REQUEST_ID} characters", param="request_id")
    # Every value was checked when it came, or made here: to check a prompt of 100,000 ids once more takes milliseconds.
    return GenerateRequest.model_construct(
        request_id=request_id,
        token_ids=prompt.ids,
        sampling_params=sampling_params,
        model=renderer.model.name,
        stream=request.stream,
        stream_options=request.stream_options,
        cache_salt=request.cache_salt,
        priority=request.priority,
        return_token_ids=request.return_token_ids,
        token_offsets=prompt.offsets,
        message_indices=prompt.messages,
        sampled_mask=prompt.sampled,
        token_identity=prompt.identity,
        kv_transfer_params=request.kv_transfer_params,
        ec_transfer_params=request.ec_transfer_params,
        profile=renderer.profile.fingerprint,
        parse_context=parse,
    )
