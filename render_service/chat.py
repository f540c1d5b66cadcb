"""`/v1/chat/completions/render`: OpenAI's chat requests."""

import json
from typing import Any

from protocol.chat import ChatCompletionRequest
from protocol.errors import BadRequest
from render_service import sampling
from render_service.answer import generate_request
from render_service.conversation import Conversation
from render_service.prompt import room, truncation
from render_service.renderer import Renderer
from render_service.writing import Wanted, write
from service_kit.body import parse

JsonObject = dict[str, Any]

_OWN_NAMES = frozenset({"messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"})
"""What templates see under these names comes from the request's own fields."""


def render(renderer: Renderer, body: bytes, request_id: str) -> bytes:
    """A chat request's JSON -> a generate request's. Raises `BadRequest` that names the field, `NotFound` for another model."""
    request = parse(ChatCompletionRequest, body)
    profile = renderer.profile
    renderer.model.check(request.model)
    if request.tool_choice is not None and request.tool_choice not in ("none", "auto"):
        raise BadRequest("tool_choice: only none and auto are supported; a call cannot be forced", param="tool_choice")
    asked, asked_at = request.max_tokens, "max_tokens"
    if request.max_completion_tokens is not None:
        asked, asked_at = request.max_completion_tokens, "max_completion_tokens"
    prompt = write(
        renderer,
        conversation(request, body),
        Wanted(
            add_special_tokens=request.add_special_tokens,
            cut=truncation(profile, request, asked),
            offsets=bool(request.return_token_offsets),
            sources=request.return_token_sources,
        ),
    )
    default = profile.generation_defaults.get("max_tokens")
    max_tokens = room(profile, prompt, where="messages", asked=asked, asked_at=asked_at, default=default)
    answer_id = f"chatcmpl-{request.request_id or request_id}"
    answer = generate_request(renderer, request, prompt, answer_id, lambda: sampling.for_chat(renderer, request, max_tokens))
    return answer.wire()


def conversation(request: ChatCompletionRequest, body: bytes) -> Conversation:
    """Raises `BadRequest`."""
    effort = {} if request.reasoning_effort is None else {"reasoning_effort": request.reasoning_effort}
    return Conversation(
        messages=request.messages,
        tools=tools_as_sent(body) if request.tools else None,
        documents=request.documents,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        template=request.chat_template,
        variables={**effort, **own_variables(request.chat_template_kwargs)},
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


def own_variables(given: JsonObject | None) -> JsonObject:
    for name in given or {}:
        if name in _OWN_NAMES:
            where = f"chat_template_kwargs.{name}"
            raise BadRequest(f"{where}: give {name} as a field of the request itself", param=where)
    return given or {}
