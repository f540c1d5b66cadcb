"""What reading an output needs of the request that it answers: all that derender takes of it."""

from typing import TYPE_CHECKING, Any

from protocol.base import Maybe, Natural, Wire
from protocol.sampling import StopStrings, StopTokenIds
from protocol.tools import Function, Tool, ToolChoice

if TYPE_CHECKING:  # which know the answers of render, of which this is a part
    from protocol.chat import ChatCompletionRequest
    from protocol.completion import CompletionRequest
    from protocol.requests import GenerationRequest


class ParseContext(Wire):
    """Render answers it, and derender takes it in place of the request, whose conversation it does not need. Of tools only names
    and parameters are here. `echo` is the text that a chat's answer begins with; with `echo_prompt` a completion's begins with its
    prompt."""

    completion: bool = False
    stop: StopStrings = []
    stop_token_ids: StopTokenIds = []
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    min_tokens: Natural = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    tools: Maybe[list[Tool]] = None
    tool_choice: Maybe[ToolChoice] = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    echo: str = ""
    echo_prompt: bool = False

    @classmethod
    def of(cls, request: "GenerationRequest", *, tools: list[Tool] | None = None, **more: Any) -> "ParseContext":
        """Of the fields that all requests have, and `more` that a chat or a completion has."""
        return cls.model_construct(
            stop=request.stop_strings,
            stop_token_ids=request.stop_token_ids or [],
            ignore_eos=request.ignore_eos,
            include_stop_str_in_output=request.include_stop_str_in_output,
            min_tokens=request.min_tokens,
            skip_special_tokens=request.skip_special_tokens,
            spaces_between_special_tokens=request.spaces_between_special_tokens,
            return_token_ids=bool(request.return_token_ids),
            return_tokens_as_token_ids=bool(request.return_tokens_as_token_ids),
            tools=[_callable(tool) for tool in tools] if tools else None,
            **more,
        )

    @classmethod
    def of_chat(cls, request: "ChatCompletionRequest") -> "ParseContext":
        return cls.of(
            request,
            tools=request.tools,
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            include_reasoning=request.include_reasoning,
            echo=_continued(request) if request.echo else "",
        )

    @classmethod
    def of_completion(cls, request: "CompletionRequest") -> "ParseContext":
        return cls.of(request, completion=True, echo_prompt=bool(request.echo))


def _callable(tool: Tool) -> Tool:
    return Tool(function=Function(name=tool.function.name, parameters=tool.function.parameters))


def _continued(request: "ChatCompletionRequest") -> str:
    """The assistant message that a chat continues."""
    last = request.messages[-1]
    if last.role != "assistant" or last.content is None:
        return ""
    return last.content if isinstance(last.content, str) else "".join(part.text or "" for part in last.content)
