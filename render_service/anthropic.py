"""`/v1/messages/render`: Anthropic's requests.

Redacted thinking is dropped: it is sealed for Anthropic's own servers, and has no text. A result's `is_error` is a field of its
message, for templates that read it. `thinking` sets the variables by which templates switch it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from protocol.anthropic import (
    AnthropicToolChoice,
    AssistantTurn,
    MessagesRequest,
    SystemTurn,
    TextBlock,
    TextContent,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)
from protocol.chat import ChatMessage, Content, SystemMessage, ToolMessage, UserMessage
from protocol.errors import BadRequest
from protocol.parse_context import ParseContext
from protocol.tools import ToolChoice
from render_service import pieces, refusals
from render_service.conversation import Conversation
from render_service.refusals import refuse
from render_service.renderer import Renderer
from render_service.turn import Turn, answer, generation
from render_service.variables import effort_variable, own_variables, thinking_variables
from service_kit.body import WORDS, parse

JsonObject = dict[str, Any]

_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}


def render(renderer: Renderer, body: bytes, request_id: str) -> bytes:
    """A messages request's JSON -> a generate request's. Raises `BadRequest` that names the field, `NotFound` for another model."""
    return answer(renderer, turn(parse(MessagesRequest, body, WORDS)), "msg_", request_id)


def turn(request: MessagesRequest) -> Turn:
    """Raises `BadRequest`."""
    refuse(request, refusals.MESSAGES)
    config, thinking = request.output_config, request.thinking
    names = {
        "reasoning_effort": "output_config.effort",
        "response_format": "output_format" if request.output_format else "output_config.format",
        "continue_final_message": f"messages.{len(request.messages) - 1}",
    }
    own: JsonObject = {"max_tokens": request.max_tokens, "stop": request.stop_sequences}
    wanted = request.output_format or (config and config.format)
    if wanted:
        own["response_format"] = pieces.json_schema("output", wanted.json_schema)
    if thinking and thinking.type == "enabled":
        refuse(thinking, refusals.IN_THINKING, "thinking.")
    written, asked = conversation(request), generation(request, **own)
    choice = request.tool_choice
    tool_choice = _tool_choice(choice) if choice else None
    return Turn(
        conversation=written,
        asked=asked,
        parse=ParseContext.of(
            asked,
            tools=pieces.functions(written.tools),
            tool_choice=tool_choice,
            parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        ),
        tool_choice=tool_choice,
        names=names,
    )


def conversation(request: MessagesRequest) -> Conversation:
    """Raises `BadRequest`."""
    tools = [pieces.function_tool(tool.name, tool.description, tool.input_schema, tool.strict) for tool in request.tools or ()]
    return Conversation(
        messages=list(_messages(request)),
        tools=tools or None,
        continue_final_message=_continues(request),
        variables={
            **(thinking_variables(request.thinking.type != "disabled") if request.thinking else {}),
            **effort_variable(request.output_config.effort if request.output_config else None),
            **own_variables(request.chat_template_kwargs),
        },
    )


def _messages(request: MessagesRequest) -> Iterator[ChatMessage]:
    if request.system:
        yield SystemMessage(role="system", content=_content(request.system))
    called: set[str] = set()
    last = len(request.messages) - 1
    for index, message in enumerate(request.messages):
        where = f"messages.{index}"
        if isinstance(message, SystemTurn):
            yield SystemMessage(role="system", content=_content(message.content))
        elif isinstance(message, UserTurn):
            yield from _user(message, called, where)
        elif message.content or index != last:
            refuse(message, refusals.IN_AN_ANSWER, f"{where}.")
            called |= {block.id for block in message.content if isinstance(block, ToolUseBlock)}
            yield _assistant(message)


def _user(message: UserTurn, called: set[str], where: str) -> Iterator[ChatMessage]:
    """The results of calls, then what the user said."""
    if isinstance(message.content, str):
        yield UserMessage(role="user", content=message.content)
        return
    for index, block in enumerate(message.content):
        if isinstance(block, ToolResultBlock):
            yield _result(block, called, f"{where}.content.{index}")
    said = [block.text for block in message.content if isinstance(block, TextBlock)]
    if said:
        yield UserMessage(role="user", content=pieces.content(said))


def _result(block: ToolResultBlock, called: set[str], where: str) -> ToolMessage:
    if block.tool_use_id not in called:
        raise BadRequest(f"{where}.tool_use_id: no call before has the id {block.tool_use_id!r}", param=f"{where}.tool_use_id")
    error = {"is_error": True} if block.is_error else {}
    return ToolMessage.model_validate(
        {"role": "tool", "tool_call_id": block.tool_use_id, "content": _content(block.content or ""), **error}
    )


def _assistant(message: AssistantTurn) -> ChatMessage:
    if isinstance(message.content, str):
        return pieces.assistant([], [message.content], [])
    return pieces.assistant(
        [block.thinking for block in message.content if isinstance(block, ThinkingBlock)],
        [block.text for block in message.content if isinstance(block, TextBlock)],
        [pieces.call(block.id, block.name, block.input) for block in message.content if isinstance(block, ToolUseBlock)],
    )


def _continues(request: MessagesRequest) -> bool:
    """Whether the last message is the beginning of the answer. (One without any content is none.)"""
    where, last = f"messages.{len(request.messages) - 1}", request.messages[-1]
    if not isinstance(last, AssistantTurn) or not last.content:
        return False
    if isinstance(last.content, str):
        return True
    for index, block in enumerate(last.content):
        if isinstance(block, ToolUseBlock):
            at = f"{where}.content.{index}"
            raise BadRequest(f"{at}: the last message has a call, whose result must follow", param=at)
    if not isinstance(last.content[-1], TextBlock):
        at = f"{where}.content.{len(last.content) - 1}"
        raise BadRequest(f"{at}: the answer is to go on where the last message ends, which must be text", param=at)
    return True


def _content(given: TextContent) -> Content:
    texts: Sequence[str] = [given] if isinstance(given, str) else [block.text for block in given]
    return pieces.content(texts)


def _tool_choice(choice: AnthropicToolChoice) -> ToolChoice:
    return pieces.named(choice.name) if choice.type == "tool" and choice.name else _CHOICES[choice.type]
