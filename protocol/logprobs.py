"""Log probabilities: as the worker tells them (token ids, no text) and as OpenAI's two endpoints show them."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from protocol.base import Maybe, Natural, TokenId, Wire
from protocol.errors import field_error

_PLACEHOLDER = re.compile(r"token_id:(\d{1,10})")
LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot say; vLLM's value."""


class TokenLogprob(Wire):
    """One candidate at one position. `rank` counts from 1 in the raw distribution; None where the worker does not tell."""

    token_id: TokenId
    logprob: float = LOWEST
    rank: Maybe[Natural] = None

    @model_validator(mode="before")
    @classmethod
    def _read_placeholder(cls, data: Any) -> Any:
        # Workers before vLLM 0.32 name a token as text: "token_id:504".
        if isinstance(data, dict) and "token_id" not in data and isinstance(data.get("token"), str):
            match = _PLACEHOLDER.fullmatch(data["token"])
            return {**data, "token_id": int(match[1])} if match else data
        return data


class TokenLogprobEntry(TokenLogprob):
    """The sampled token of one position and the best candidates there."""

    top_logprobs: list[TokenLogprob] = []


class TokenLogprobs(Wire):
    """One entry for every id of the chunk or choice it stands beside."""

    content: list[TokenLogprobEntry] | None = None


def check_entries(logprobs: TokenLogprobs | None, token_ids: Sequence[int] | None) -> None:
    """For validators of what has both: every id has its entry, and no entry is without its id."""
    entries, ids = logprobs.content if logprobs else None, token_ids or ()
    if entries is not None and len(entries) != len(ids):
        raise field_error("logprobs", f"logprobs.content must have one entry for each token id ({len(entries)} for {len(ids)})")


class ChatLogprob(Wire):
    """`token` is readable text; `bytes` are the token's real UTF-8 bytes, also where they are only part of a character."""

    token: str
    logprob: float = LOWEST
    bytes: list[Annotated[int, Field(ge=0, le=255)]] | None = None


class ChatLogprobEntry(ChatLogprob):
    top_logprobs: list[ChatLogprob] = []


class ChatLogprobs(Wire):
    content: list[ChatLogprobEntry] | None = None
    refusal: Maybe[list[ChatLogprobEntry]] = None


class CompletionLogprobs(Wire):
    """Parallel lists, one item a token. `text_offset` counts characters of the choice's whole text."""

    text_offset: list[int] = []
    token_logprobs: list[float | None] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []
