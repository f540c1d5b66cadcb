"""`/v1/responses/render`: OpenAI's requests that bring their whole conversation as items.

Reasoning that is there in encrypted form alone is dropped: it has no text. A message of the assistant at the end is continued if
its status says that it is not complete.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any

from protocol.chat import ChatMessage, Content, DeveloperMessage, SystemMessage, ToolMessage, UserMessage
from protocol.errors import BadRequest
from protocol.parse_context import ParseContext
from protocol.responses import (
    LOGPROBS,
    AllowedTools,
    FunctionCallItem,
    FunctionCallOutputItem,
    FunctionChoice,
    Item,
    JsonSchemaFormat,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    ResponsesRequest,
)
from protocol.tools import ToolChoice
from render_service import pieces, refusals
from render_service.conversation import Conversation
from render_service.refusals import refuse
from render_service.renderer import Renderer
from render_service.turn import Turn, answer, generation
from render_service.variables import effort_variable, own_variables
from service_kit.body import WORDS, parse

JsonObject = dict[str, Any]
Placed = tuple[str, Item]
"""An item, and where it stands in the request."""
Written = tuple[ChatMessage, Sequence[str]]
"""A message, and where the arguments of its calls stand in the request."""


def render(renderer: Renderer, body: bytes, request_id: str) -> bytes:
    """A responses request's JSON -> a generate request's. Raises `BadRequest` that names the field, `NotFound` for other models."""
    return answer(renderer, turn(parse(ResponsesRequest, body, WORDS)), "resp_", request_id)


def turn(request: ResponsesRequest) -> Turn:
    """Raises `BadRequest`."""
    refuse(request, refusals.RESPONSES)
    written = list(_written(request))
    tools, tool_choice = _tools(request), _tool_choice(request)
    asked = generation(request, max_tokens=request.max_output_tokens, stop=request.stop, response_format=_response_format(request))
    return Turn(
        conversation=Conversation(
            messages=[message for message, _ in written],
            tools=tools or None,
            continue_final_message=_continues(request),
            variables={
                **effort_variable(request.reasoning.effort if request.reasoning else None),
                **own_variables(request.chat_template_kwargs),
            },
        ),
        asked=asked,
        parse=ParseContext.of(
            asked,
            tools=pieces.functions(tools),
            tool_choice=tool_choice,
            parallel_tool_calls=request.parallel_tool_calls is not False,
        ),
        tool_choice=tool_choice,
        top_logprobs=(request.top_logprobs or 0) if LOGPROBS in (request.include or ()) else None,
        names={
            "messages": "input",
            "max_tokens": "max_output_tokens",
            "reasoning_effort": "reasoning.effort",
            "response_format": "text.format",
            "continue_final_message": "input",
            **{
                f"messages.{index}.tool_calls.{place}.function.arguments": own
                for index, (_, calls) in enumerate(written)
                for place, own in enumerate(calls)
            },
        },
    )


def _written(request: ResponsesRequest) -> Iterator[Written]:
    if request.instructions:
        yield SystemMessage(role="system", content=request.instructions), ()
    if isinstance(request.input, str):
        yield UserMessage(role="user", content=request.input), ()
        return
    called: set[str] = set()
    placed = [(f"input.{index}", item) for index, item in enumerate(request.input)]
    for by_assistant, run in groupby(placed, key=lambda place: _by_assistant(place[1])):
        items = list(run)
        if by_assistant:
            called |= {item.call_id for _, item in items if isinstance(item, FunctionCallItem)}
            yield from _assistant(items)
        else:
            yield from ((_other(item, called, where), ()) for where, item in items)


def _by_assistant(item: Item) -> bool:
    return isinstance(item, FunctionCallItem | ReasoningItem) or (isinstance(item, MessageItem) and item.role == "assistant")


def _assistant(items: Sequence[Placed]) -> Iterator[Written]:
    """One message, if there is anything to read in what stands between two messages of others."""
    for where, item in items:
        refuse(item, refusals.IN_AN_ANSWER, f"{where}.")
    reasoning = [text for _, item in items if isinstance(item, ReasoningItem) for text in _thought(item)]
    said = [text for _, item in items if isinstance(item, MessageItem) for text in _texts(item)]
    calls = [(where, item) for where, item in items if isinstance(item, FunctionCallItem)]
    if reasoning or said or calls:
        made = [pieces.call(call.call_id, call.name, call.arguments) for _, call in calls]
        yield pieces.assistant(reasoning, said, made), [f"{where}.arguments" for where, _ in calls]


def _other(item: Item, called: set[str], where: str) -> ChatMessage:
    if isinstance(item, FunctionCallOutputItem):
        if item.call_id not in called:
            raise BadRequest(f"{where}.call_id: no call before has the id {item.call_id!r}", param=f"{where}.call_id")
        output = item.output if isinstance(item.output, str) else pieces.content([part.text for part in item.output])
        return ToolMessage(role="tool", tool_call_id=item.call_id, content=output)
    assert isinstance(item, MessageItem)
    content: Content = pieces.content(_texts(item))
    if item.role == "user":
        return UserMessage(role="user", content=content)
    if item.role == "developer":
        return DeveloperMessage(role="developer", content=content)
    return SystemMessage(role="system", content=content)


def _texts(item: MessageItem) -> list[str]:
    if isinstance(item.content, str):
        return [item.content]
    return [part.refusal if isinstance(part, RefusalPart) else part.text for part in item.content]


def _thought(item: ReasoningItem) -> list[str]:
    return [text.text for text in item.content or item.summary or ()]


def _continues(request: ResponsesRequest) -> bool:
    """Whether the last item is the beginning of the answer."""
    items = request.input if isinstance(request.input, list) else []
    last = items[-1] if items else None
    if not (isinstance(last, MessageItem) and last.role == "assistant" and last.status in ("in_progress", "incomplete")):
        return False
    if any(isinstance(item, FunctionCallItem) for item in takewhile(_by_assistant, reversed(items))):
        where = f"input.{len(items) - 1}"
        raise BadRequest(f"{where}: a message beside a call cannot be continued; its result must follow", param=where)
    return True


def _tools(request: ResponsesRequest) -> list[JsonObject]:
    """The tools that the model may see. Raises `BadRequest` for an allowed tool that is not among them."""
    offered = request.tools or []
    if isinstance(request.tool_choice, AllowedTools):
        names = {tool.name for tool in offered}
        for index, allowed in enumerate(request.tool_choice.tools):
            if allowed.name not in names:
                where = f"tool_choice.tools.{index}.name"
                raise BadRequest(f"{where}: no tool of the request is called {allowed.name!r}", param=where)
        allowed_names = {allowed.name for allowed in request.tool_choice.tools}
        offered = [tool for tool in offered if tool.name in allowed_names]
    return [pieces.function_tool(tool.name, tool.description, tool.parameters, tool.strict) for tool in offered]


def _tool_choice(request: ResponsesRequest) -> ToolChoice | None:
    choice = request.tool_choice
    if isinstance(choice, AllowedTools):
        return choice.mode
    return pieces.named(choice.name) if isinstance(choice, FunctionChoice) else choice


def _response_format(request: ResponsesRequest) -> JsonObject | None:
    wanted = request.text.format if request.text else None
    if wanted is None:
        return None
    if isinstance(wanted, JsonSchemaFormat):
        return pieces.json_schema(wanted.name, wanted.json_schema, description=wanted.description, strict=wanted.strict)
    return {"type": wanted.type}
