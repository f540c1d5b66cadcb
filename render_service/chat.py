"""`/v1/chat/completions/render`: OpenAI's chat requests."""

import json
from typing import Any

from protocol.chat import ChatCompletionRequest
from protocol.errors import BadRequest
from protocol.parse_context import ParseContext
from render_service import refusals
from render_service.conversation import Conversation
from render_service.refusals import refuse
from render_service.renderer import Renderer
from render_service.turn import Turn, answer
from render_service.variables import effort_variable, own_variables
from service_kit.body import WORDS, parse

JsonObject = dict[str, Any]


def render(renderer: Renderer, body: bytes, request_id: str) -> bytes:
    """A chat request's JSON -> a generate request's. Raises `BadRequest` that names the field, `NotFound` for another model."""
    return answer(renderer, turn(parse(ChatCompletionRequest, body, WORDS), body), "chatcmpl-", request_id)


def turn(request: ChatCompletionRequest, body: bytes) -> Turn:
    """Raises `BadRequest`."""
    refuse(request, refusals.CHAT)
    newer = request.max_completion_tokens
    return Turn(
        conversation=conversation(request, body),
        asked=request if newer is None else request.model_copy(update={"max_tokens": newer}),
        parse=ParseContext.of_chat(request),
        tool_choice=request.tool_choice,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        add_special_tokens=request.add_special_tokens,
        token_sources=request.return_token_sources,
        names={} if newer is None else {"max_tokens": "max_completion_tokens"},
    )


def conversation(request: ChatCompletionRequest, body: bytes) -> Conversation:
    """Raises `BadRequest`."""
    return Conversation(
        messages=request.messages,
        tools=tools_as_sent(body) if request.tools else None,
        documents=request.documents,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        template=request.chat_template,
        variables={**effort_variable(request.reasoning_effort), **own_variables(request.chat_template_kwargs)},
        prefix=request.prefix,
        keep_ids=request.history == "extend",
    )


def tools_as_sent(body: bytes) -> list[JsonObject]:
    """The tools in the client's own order of keys, with nothing added or left out: templates print them as they are."""
    try:
        tools: list[JsonObject] = json.loads(body)["tools"]
    except ValueError as error:  # a number of so many digits that Python will not read it
        raise BadRequest(f"tools: {error}", param="tools") from error
    return tools
