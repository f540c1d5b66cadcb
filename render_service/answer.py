"""What render answers, whatever the shape of the request."""

from collections.abc import Callable

from pydantic import ValidationError

from protocol.errors import invalid
from protocol.generate import GenerateRequest
from protocol.requests import GenerationRequest
from protocol.sampling import SamplingParams
from render_service.prompt import Prompt
from render_service.renderer import Renderer


def generate_request(
    renderer: Renderer, request: GenerationRequest, prompt: Prompt, request_id: str, sampling_params: Callable[[], SamplingParams]
) -> GenerateRequest:
    """The generate request of one prompt. Raises `BadRequest` for values that do not go together."""
    try:
        return GenerateRequest(
            request_id=request_id,
            token_ids=prompt.ids,
            sampling_params=sampling_params(),
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
        )
    except ValidationError as error:
        raise invalid(error) from error
