"""From what a choice advanced by to OpenAI's shapes, for chat and for completions."""

from derender_service.calls import CallPart, call_id
from derender_service.choice import Advance
from derender_service.derenderer import Derenderer
from derender_service.logprobs import for_chat, for_completion
from protocol.chat import AssistantAnswer, ChatChoice, ChatChunkChoice, Delta
from protocol.completion import CompletionChoice
from protocol.derender import DerenderContext
from protocol.generate import FinishReason
from protocol.logprobs import ChatLogprobs, CompletionLogprobs
from protocol.tools import FunctionCall, FunctionCallDelta, ToolCall, ToolCallDelta


def chat_delta(
    derenderer: Derenderer, context: DerenderContext, answer_id: str, index: int, step: Advance, *, prefix: str, opens: bool
) -> ChatChunkChoice:
    """One choice of a chat chunk. `opens` says that it is the choice's first: it has the role, and content even when empty."""
    content, reasoning = prefix + step.content, "" if context.hide_reasoning else step.reasoning
    calls = [_call_delta(derenderer, context, answer_id, index, part) for part in step.calls]
    return ChatChunkChoice(
        index=index,
        delta=Delta(
            role="assistant" if opens else None,
            content=content if content or (opens and not reasoning and not calls) else None,
            reasoning=reasoning or None,
            reasoning_content=reasoning or None if derenderer.older_reasoning_field else None,
            tool_calls=calls or None,
        ),
        logprobs=_chat_logprobs(derenderer, context, step),
        finish_reason=_finish_reason(context, step),
        stop_reason=step.stop_reason,
        token_ids=_shown_ids(context, step),
    )


def chat_choice(
    derenderer: Derenderer, context: DerenderContext, answer_id: str, index: int, step: Advance, *, prefix: str
) -> ChatChoice:
    content, reasoning = prefix + step.content, "" if context.hide_reasoning else step.reasoning
    calls = [_call(derenderer, context, answer_id, index, part) for part in step.calls]
    return ChatChoice(
        index=index,
        message=AssistantAnswer(
            content=content if content or not (reasoning or calls) else None,
            reasoning=reasoning or None,
            reasoning_content=reasoning or None if derenderer.older_reasoning_field else None,
            tool_calls=calls or None,
        ),
        logprobs=_chat_logprobs(derenderer, context, step),
        finish_reason=_finish_reason(context, step),
        stop_reason=step.stop_reason,
        token_ids=_shown_ids(context, step),
    )


def _call_delta(derenderer: Derenderer, context: DerenderContext, answer_id: str, index: int, part: CallPart) -> ToolCallDelta:
    if part.name is None:
        return ToolCallDelta(index=part.index, function=FunctionCallDelta(arguments=part.arguments))
    return ToolCallDelta(
        index=part.index,
        id=call_id(derenderer.call_ids(context), answer_id, index, part),
        type="function",
        function=FunctionCallDelta(name=part.name, arguments=part.arguments),
    )


def _call(derenderer: Derenderer, context: DerenderContext, answer_id: str, index: int, part: CallPart) -> ToolCall:
    own_id = call_id(derenderer.call_ids(context), answer_id, index, part)
    return ToolCall(id=own_id, function=FunctionCall(name=part.name or "", arguments=part.arguments))


def _finish_reason(context: DerenderContext, step: Advance) -> str | None:
    """`stop` becomes `tool_calls` when calls were made, unless the request named the function: so OpenAI's API does it."""
    calls_end_it = step.called and context.tool_choice in ("auto", "required")
    return "tool_calls" if calls_end_it and step.finish_reason is FinishReason.STOP else step.finish_reason


def _shown_ids(context: DerenderContext, step: Advance) -> list[int] | None:
    """Hidden reasoning could be read off the ids, as off logprobs."""
    return step.token_ids if context.return_token_ids and not context.hide_reasoning else None


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
        text=prefix + step.content,
        logprobs=_completion_logprobs(derenderer, context, step),
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=step.token_ids if context.return_token_ids else None,
        prompt_token_ids=prompt_token_ids if context.return_token_ids else None,
    )


def _chat_logprobs(derenderer: Derenderer, context: DerenderContext, step: Advance) -> ChatLogprobs | None:
    if step.logprobs is None or context.hide_reasoning:
        return None
    return for_chat(step.logprobs, derenderer.detokenizer.bytes_of, as_ids=context.tokens_as_ids)


def _completion_logprobs(derenderer: Derenderer, context: DerenderContext, step: Advance) -> CompletionLogprobs | None:
    if step.logprobs is None:
        return None
    return for_completion(step.logprobs, step.offsets, derenderer.detokenizer.bytes_of, as_ids=context.tokens_as_ids)
