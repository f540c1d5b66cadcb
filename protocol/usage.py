"""Token counts of a request."""

from typing import Annotated

from pydantic import Field

from protocol.base import Maybe, Wire

Count = Annotated[int, Field(ge=0)]


class PromptTokensDetails(Wire):
    cached_tokens: Count | None = None


class CompletionTokensDetails(Wire):
    reasoning_tokens: Count = 0


class Usage(Wire):
    prompt_tokens: Count = 0
    completion_tokens: Count | None = 0
    total_tokens: Count = 0
    prompt_tokens_details: Maybe[PromptTokensDetails] = None
    completion_tokens_details: Maybe[CompletionTokensDetails] = None

    @classmethod
    def of(cls, prompt: int, completion: int) -> "Usage":
        return cls(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
