"""Sampling parameters of a generate request, with vLLM's names, meanings and bounds."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError, to_json

from protocol.base import Extensible, JsonObject, Maybe, Natural, Positive, Seed, TokenId
from protocol.errors import field_error

MAX_CHOICES = 128
MAX_STOP_STRINGS = 32
MAX_STOP_BYTES = 1024
"""Bounds of `stop`, all strings together, as JSON writes them: they travel in every derender state, as may the text held back."""


def _within_bounds(stop: list[str] | str) -> list[str] | str:
    total = sum(len(to_json(text)) - 2 for text in ([stop] if isinstance(stop, str) else stop))
    if total > MAX_STOP_BYTES:
        raise PydanticCustomError("stop", "stop strings may have {limit} bytes together", {"limit": MAX_STOP_BYTES})
    return stop


MAX_STOP_TOKEN_IDS = 64

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_BYTES)]
StopStrings = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS), AfterValidator(_within_bounds)]
StopTokenIds = Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)]
Stop = StopStrings | Annotated[StopString, AfterValidator(_within_bounds)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

_NEUTRAL: tuple[Any, ...] = (None, False, 0, "", [], {})
# What vLLM's renderer writes beside the parameters: directives to its own process, with no bearing on which tokens come out.
_INERT = frozenset({"detokenize", "output_kind", "skip_clone", "output_text_buffer_length", "flat_logprobs"})


class SamplingParams(Extensible):
    """What the worker needs to choose tokens.

    A parameter that this type does not know is an error that names it, unless its value is neutral (null, false, 0, empty): what a
    client asks for is never dropped in silence, and what a newer peer merely mentions does no harm.
    """

    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, le=2**31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Maybe[Seed] = None
    max_tokens: Maybe[Positive] = None
    min_tokens: Natural = 0
    stop: Maybe[Stop] = None
    stop_token_ids: Maybe[StopTokenIds] = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    logit_bias: Maybe[dict[TokenId, Finite]] = None
    allowed_token_ids: Maybe[list[TokenId]] = None
    bad_words: Maybe[list[str]] = None
    bad_words_token_ids: Maybe[list[list[TokenId]]] = None
    logprobs: Maybe[Annotated[int, Field(ge=-1, le=2**31)]] = None
    prompt_logprobs: Maybe[Annotated[int, Field(ge=-1, le=2**31)]] = None
    structured_outputs: Maybe[JsonObject] = None

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _integer_keys(cls, value: Any) -> Any:
        # JSON has text keys only; token ids are strict integers everywhere else.
        if isinstance(value, dict):
            return {int(k) if isinstance(k, str) and k.isascii() and k.isdigit() else k: v for k, v in value.items()}
        return value

    @field_validator("logit_bias")
    @classmethod
    def _clamp(cls, value: dict[int, float] | None) -> dict[int, float] | None:
        return value and {token: max(-100.0, min(100.0, bias)) for token, bias in value.items()}

    @model_validator(mode="after")
    def _check(self) -> "SamplingParams":
        for name, value in (self.model_extra or {}).items():
            if name not in _INERT and not name.startswith("_") and not any(value is n or value == n for n in _NEUTRAL):
                raise field_error(name, "this parameter is not supported")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise field_error("min_tokens", f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})")
        return self
