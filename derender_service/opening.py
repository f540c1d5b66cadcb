"""The beginning of a choice: what its later chunks need of the request and the prompt, gathered once."""

from collections.abc import Sequence

from derender_service.derenderer import Derenderer
from derender_service.parsers.codecs.parameter_types import kinds_of
from derender_service.parsers.grammar import Choice
from derender_service.parsers.type_table import BrokenTable, pack
from protocol.chat import ChatCompletionRequest
from protocol.completion import CompletionRequest
from protocol.derender import DerenderContext
from protocol.errors import BadRequest
from protocol.tools import NamedToolChoice

Request = ChatCompletionRequest | CompletionRequest


def context_of(derenderer: Derenderer, request: Request | None, prompt_tokens: int, *, replay: bool = False) -> DerenderContext:
    """What to carry of the request; without one, the endpoints' defaults. Raises `BadRequest` for tools that no state can carry."""
    if request is None:
        return DerenderContext(prompt_tokens=prompt_tokens, replay=replay)
    context = DerenderContext(
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
        replay=replay,
        completion=isinstance(request, CompletionRequest),
    )
    if derenderer.parsing is None or not isinstance(request, ChatCompletionRequest):
        return context
    choice, name = tool_choice_of(request, derenderer)
    parsed = {
        "tool_choice": choice,
        "tool_name": name,
        "single_call": request.parallel_tool_calls is False,
        "hide_reasoning": not request.include_reasoning,
        "parameter_types": _types(request) if derenderer.parsing.typed and choice != "none" else "",
    }
    return context.model_copy(update=parsed)


def tool_choice_of(request: ChatCompletionRequest, derenderer: Derenderer) -> tuple[Choice, str]:
    """How the request chooses its tools, and the function that it names. Without tools nothing is called."""
    asked = request.tool_choice
    if not request.tools or asked == "none":
        return "none", ""
    if isinstance(asked, NamedToolChoice):
        return "named", asked.function.name
    if asked == "required":
        return "required", ""
    return ("auto" if derenderer.auto_tool_choice else "none"), ""


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


def _types(request: ChatCompletionRequest) -> str:
    try:
        return pack(kinds_of((tool.function.name, tool.function.parameters) for tool in request.tools or ()))
    except BrokenTable as error:
        raise BadRequest(str(error), param="chat_request.tools") from error
