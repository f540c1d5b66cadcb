"""`POST /inference/v1/generate`: token ids in, token ids out; and `/inference/v1/abort_requests`."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocol.base import Integer, JsonObject, Maybe, Natural, Positive, RequestId, TokenId, Wire
from protocol.logprobs import TokenLogprob, TokenLogprobs, check_entries
from protocol.parse_context import ParseContext
from protocol.sampling import MAX_STOP_BYTES, SamplingParams
from protocol.usage import Usage


class FinishReason(StrEnum):
    """Why a choice ended: a stopping token or string, the length limit, or an abort."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


StopReason = Integer | Annotated[str, Field(max_length=MAX_STOP_BYTES)] | None
"""What ended a choice: the stop token's id, the stop string, or None for the primary eos token and for all else."""


class StreamOptions(Wire):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class PlaceholderRange(Wire):
    """Where one multimodal item lies in the prompt, in token positions."""

    offset: Natural
    length: Positive


class MultiModalFeatures(Wire):
    """Hashes, places and (base64) tensors of multimodal items, by modality. Text-only workers refuse them by name."""

    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[PlaceholderRange]]
    kwargs_data: Maybe[dict[str, list[str | None]]] = None
    mm_metadata: Maybe[dict[str, list[str | None]]] = None


MessageIndex = Annotated[int, Field(ge=-1, le=2**31)]
"""A message's place in its request; -1 is for what is of no message."""


class TokenIdentity(Wire):
    """How a prompt stands to the ids that its request brought. The first `prefix_len` ids are those of the conversation so far,
    up to the last one that the request brought. `rewritten_from` is the first message that would be written otherwise if
    everything were written anew, as where a template drops old reasoning; -1 stands for what comes before the messages."""

    prefix_len: Natural
    rewritten_from: MessageIndex | None = None


class GenerateRequest(Wire):
    """What render answers and the worker takes.

    `profile` is the fingerprint of the tokenizer, template and formats the prompt was rendered with. `output_token_ids` are
    ids that were already generated: the worker prefills them and goes on at `token_index = len(output_token_ids)`.
    `parse_context` is what derender needs of the request.
    `token_offsets` are character spans of the prompt text, one a token; `message_indices` says for each which message it is of,
    -1 for none, and `sampled_mask` whether the model itself sampled it.
    """

    request_id: Maybe[RequestId] = None
    token_ids: Annotated[list[TokenId], Field(min_length=1)]
    sampling_params: SamplingParams
    model: Maybe[str] = None
    stream: bool | None = False
    stream_options: Maybe[StreamOptions] = None
    cache_salt: Maybe[Annotated[str, Field(min_length=1, max_length=1024)]] = None
    priority: Integer = 0
    return_token_ids: Maybe[bool] = None
    output_mode: Literal["tokens"] = "tokens"
    token_offsets: Maybe[list[tuple[Natural, Natural]]] = None
    message_indices: Maybe[list[MessageIndex]] = None
    sampled_mask: Maybe[list[bool]] = None
    token_identity: Maybe[TokenIdentity] = None
    output_token_ids: Maybe[list[TokenId]] = None
    features: Maybe[MultiModalFeatures] = None
    content_parts: Maybe[list[JsonObject]] = None
    reasoning_ended: Maybe[bool] = None
    reasoning_parser_kwargs: Maybe[JsonObject] = None
    kv_transfer_params: Maybe[JsonObject] = None
    ec_transfer_params: Maybe[JsonObject] = None
    profile: Maybe[Annotated[str, Field(max_length=128)]] = None
    parse_context: Maybe[ParseContext] = None


NOT_THE_WORKERS = frozenset({"parse_context", "token_offsets", "message_indices", "sampled_mask", "token_identity"})
"""Fields of render's answer that are for others than the worker; some are as long as the prompt."""


class Timings(Wire):
    """Milliseconds. `queue_ms`: enqueue to first prefill; `execution_ms`: from there to the end; `total_ms`: their sum;
    `ttft_ms`: enqueue to first token, None if there was none; `tokens_per_s`: output tokens over `execution_ms`."""

    queue_ms: float
    ttft_ms: float | None
    execution_ms: float
    total_ms: float
    tokens_per_s: float


class GenerateChoice(Wire):
    """One finished output: the ids generated for it, the stopping token included. Of a resumed one, those after the resumed ids."""

    index: Natural
    token_ids: Maybe[list[TokenId]] = None
    logprobs: Maybe[TokenLogprobs] = None
    finish_reason: FinishReason | None = FinishReason.STOP
    stop_reason: StopReason = None

    @model_validator(mode="after")
    def _one_entry_per_id(self) -> "GenerateChoice":
        check_entries(self.logprobs, self.token_ids)
        return self


class GenerateResponse(Wire):
    """The answer without streaming."""

    request_id: RequestId
    created: Maybe[Natural] = None
    model: Maybe[str] = None
    choices: list[GenerateChoice]
    usage: Maybe[Usage] = None
    timings: Maybe[Timings] = None
    seed: Maybe[Integer] = None
    prompt_logprobs: Maybe[list[dict[Natural, TokenLogprob] | None]] = None
    prompt_token_ids: Maybe[list[TokenId]] = None
    kv_transfer_params: Maybe[JsonObject] = None
    output_mode: Literal["tokens"] = "tokens"


class AbortRequest(Wire):
    request_ids: Annotated[list[RequestId], Field(max_length=10_000)]


class AbortResponse(Wire):
    """How many of the named requests were running or waiting, and are no more."""

    aborted: Natural
