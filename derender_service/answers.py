"""From what a choice advanced by to OpenAI's shapes, for chat and for completions."""

from derender_service.choice import Advance
from derender_service.derenderer import Derenderer
from derender_service.logprobs import for_chat, for_completion
from protocol.chat import AssistantAnswer, ChatChoice, ChatChunkChoice, Delta
from protocol.completion import CompletionChoice
from protocol.derender import DerenderContext
from protocol.logprobs import ChatLogprobs, CompletionLogprobs


def chat_delta(
    derenderer: Derenderer, context: DerenderContext, index: int, step: Advance, *, prefix: str, opens: bool
) -> ChatChunkChoice:
    """One choice of a chat chunk. `opens` says that it is the choice's first: it has the role, and content even when empty."""
    text = prefix + step.text
    return ChatChunkChoice(
        index=index,
        delta=Delta(role="assistant" if opens else None, content=text if text or opens else None),
        logprobs=_chat_logprobs(derenderer, context, step),
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=step.token_ids if context.return_token_ids else None,
    )


def chat_choice(derenderer: Derenderer, context: DerenderContext, index: int, step: Advance, *, prefix: str) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=AssistantAnswer(content=prefix + step.text),
        logprobs=_chat_logprobs(derenderer, context, step),
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=step.token_ids if context.return_token_ids else None,
    )


def completion_choice(
    derenderer: Derenderer,
    context: DerenderContext,
    index: int,
    step: Advance,
    *,
    prefix: str,
    prompt_token_ids: list[int] | None,
) -> CompletionChoice:
    """A completion's choice, whole or a delta: the shape is one. `prompt_token_ids` are given to the first delta alone."""
    return CompletionChoice(
        index=index,
        text=prefix + step.text,
        logprobs=_completion_logprobs(derenderer, context, step),
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=step.token_ids if context.return_token_ids else None,
        prompt_token_ids=prompt_token_ids if context.return_token_ids else None,
    )


def _chat_logprobs(derenderer: Derenderer, context: DerenderContext, step: Advance) -> ChatLogprobs | None:
    if step.logprobs is None:
        return None
    return for_chat(step.logprobs, derenderer.detokenizer.bytes_of, as_ids=context.tokens_as_ids)


def _completion_logprobs(derenderer: Derenderer, context: DerenderContext, step: Advance) -> CompletionLogprobs | None:
    if step.logprobs is None:
        return None
    return for_completion(step.logprobs, step.offsets, derenderer.detokenizer.bytes_of, as_ids=context.tokens_as_ids)
