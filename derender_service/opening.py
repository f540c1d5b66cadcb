"""The beginning of a choice: what its later chunks need of the request and the prompt, gathered once."""

from collections.abc import Sequence

from derender_service.derenderer import Derenderer
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.derender import DerenderContext, DerenderStreamState
from protocol.errors import BadRequest

Request = ChatCompletionRequest | CompletionRequest


def context_of(request: Request | None, prompt_tokens: int) -> DerenderContext:
    """What to carry of the request; without one, the endpoints' defaults."""
    if request is None:
        return DerenderContext(prompt_tokens=prompt_tokens)
    return DerenderContext(
        prompt_tokens=prompt_tokens,
        stop=request.stop_strings,
        stop_token_ids=request.stop_token_ids or [],
        ignore_eos=request.ignore_eos,
        include_stop_str_in_output=request.include_stop_str_in_output,
        min_tokens=request.min_tokens,
        keep_special_tokens=not request.skip_special_tokens,
        join_special_tokens=not request.spaces_between_special_tokens,
        return_token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
    )


def first_state(
    derenderer: Derenderer, context: DerenderContext, prompt_token_ids: Sequence[int] | None, *, created: int, prefix: str
) -> DerenderStreamState:
    """The state before the first output token. `prefix` is text that the answer begins with (`echo`)."""
    window = derenderer.detokenizer.seed(prompt_token_ids, keep_special=context.keep_special_tokens)
    return DerenderStreamState(
        prev_tokens=[*window.context, *window.pending],
        read_offset=len(window.context),
        logprob_text_offset=len(prefix),
        created=created,
        profile=derenderer.fingerprint,
        context=context,
    )


def echoed(derenderer: Derenderer, request: Request | None, prompt_token_ids: Sequence[int] | None) -> str:
    """The text that `echo` puts before the output: a completion's prompt, or the assistant message that a chat continues."""
    if request is None or not request.echo:
        return ""
    if isinstance(request, ChatCompletionRequest):
        last = request.messages[-1]
        if last.role != "assistant" or last.content is None:
            return ""
        return last.content if isinstance(last.content, str) else "".join(part.text or "" for part in last.content)
    if prompt_token_ids is None:
        raise BadRequest("echo needs the prompt's ids", param="prompt_token_ids")
    return derenderer.detokenizer.whole(prompt_token_ids, keep_special=not request.skip_special_tokens)
