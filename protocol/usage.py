"""Token counts of a request."""

from protocol.base import Maybe, Natural, Wire


class PromptTokensDetails(Wire):
    cached_tokens: Natural | None = None


class CompletionTokensDetails(Wire):
    reasoning_tokens: Natural = 0


class Usage(Wire):
    prompt_tokens: Natural = 0
    completion_tokens: Natural | None = 0
    total_tokens: Natural = 0
    prompt_tokens_details: Maybe[PromptTokensDetails] = None
    completion_tokens_details: Maybe[CompletionTokensDetails] = None

    @classmethod
    def of(cls, prompt: int, completion: int) -> "Usage":
        return cls(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
