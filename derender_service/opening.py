"""The beginning of a choice: what its later chunks need of the request and the prompt, gathered once."""

from collections.abc import Sequence

from derender_service.derenderer import Derenderer
from derender_service.parsers.codecs.parameter_types import kinds_of
from derender_service.parsers.grammar import Choice
from derender_service.parsers.type_table import BrokenTable, pack
from protocol.derender import DerenderContext
from protocol.errors import BadRequest
from protocol.parse_context import ParseContext
from protocol.tools import NamedToolChoice


def context_of(derenderer: Derenderer, told: ParseContext | None, prompt_tokens: int, *, replay: bool = False) -> DerenderContext:
    """What to carry of the request; without one, the endpoints' defaults. Raises `BadRequest` for tools that no state can carry."""
    if told is None:
        return DerenderContext(prompt_tokens=prompt_tokens, replay=replay)
    context = DerenderContext(
        prompt_tokens=prompt_tokens,
        stop=told.stop,
        stop_token_ids=told.stop_token_ids,
        ignore_eos=told.ignore_eos,
        include_stop_str_in_output=told.include_stop_str_in_output,
        min_tokens=told.min_tokens,
        keep_special_tokens=not told.skip_special_tokens,
        join_special_tokens=not told.spaces_between_special_tokens,
        return_token_ids=told.return_token_ids,
        tokens_as_ids=told.return_tokens_as_token_ids,
        replay=replay,
        completion=told.completion,
    )
    if derenderer.parsing is None or told.completion:
        return context
    choice, name = tool_choice_of(told, derenderer)
    parsed = {
        "tool_choice": choice,
        "tool_name": name,
        "single_call": not told.parallel_tool_calls,
        "hide_reasoning": not told.include_reasoning,
        "parameter_types": _types(told) if derenderer.parsing.typed and choice != "none" else "",
    }
    return context.model_copy(update=parsed)


def tool_choice_of(told: ParseContext, derenderer: Derenderer) -> tuple[Choice, str]:
    """How the request chooses its tools, and the function that it names. Without tools nothing is called."""
    asked = told.tool_choice
    if not told.tools or asked == "none":
        return "none", ""
    if isinstance(asked, NamedToolChoice):
        return "named", asked.function.name
    if asked == "required":
        return "required", ""
    return ("auto" if derenderer.auto_tool_choice else "none"), ""


def echoed(derenderer: Derenderer, told: ParseContext | None, prompt_token_ids: Sequence[int] | None) -> str:
    """The text that `echo` puts before the output: a completion's prompt, or the assistant message that a chat continues."""
    if told is None or not told.echo_prompt:
        return told.echo if told else ""
    if prompt_token_ids is None:
        raise BadRequest("echo needs the prompt's ids", param="prompt_token_ids")
    return derenderer.detokenizer.whole(prompt_token_ids, keep_special=not told.skip_special_tokens)


def _types(told: ParseContext) -> str:
    try:
        return pack(kinds_of((tool.function.name, tool.function.parameters) for tool in told.tools or ()))
    except BrokenTable as error:
        raise BadRequest(str(error), param="chat_request.tools") from error
