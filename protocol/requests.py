"""The fields that requests of several shapes share."""

from typing import Annotated, Literal

from pydantic import Field

from protocol.base import Extensible, Integer, JsonObject, Natural, Positive, RequestId, Seed, TokenId
from protocol.generate import StreamOptions
from protocol.sampling import MAX_CHOICES, Stop, StopTokenIds

Finite = Annotated[float, Field(allow_inf_nan=False)]


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class CommonRequest(Extensible):
    """The fields of every request shape: those that the APIs have in common, then vLLM's. None means: the model's or the server's
    default. Fields that no server of ours knows are kept, so that what asks for something can be refused by name."""

    model: str | None = None
    stream: bool | None = False
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Finite] | None = None
    seed: Seed | None = None
    user: str | None = None

    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    min_tokens: Natural = 0
    stop_token_ids: StopTokenIds | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    allowed_token_ids: list[TokenId] | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    structured_outputs: JsonObject | None = None
    priority: Integer = 0
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    request_id: RequestId | None = None
    session_id: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_offsets: bool | None = None
    kv_transfer_params: JsonObject | None = None
    ec_transfer_params: JsonObject | None = None


class GenerationRequest(CommonRequest):
    """What chats and completions have besides. Requests of the other shapes are turned into it."""

    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Positive | None = None
    stop: Stop | None = None
    response_format: JsonObject | None = None

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list, without repeats, in order."""
        if self.stop is None:
            return []
        return list(dict.fromkeys([self.stop] if isinstance(self.stop, str) else self.stop))
