"""`/v1/chat/completions/render`: messages through the chat template, then to ids."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_profile import BrokenModel, ChatTemplate, TemplateFailed
from model_profile.template_habits import habits
from protocol.chat import ChatCompletionRequest, ChatMessage
from protocol.errors import BadRequest
from render_service import sampling
from render_service.answer import generate_request
from render_service.messages import for_template, text_size
from render_service.prompt import Prompt, Truncation, check_size, from_ids, from_text, room, truncation
from render_service.renderer import Renderer
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
    chat = Chat(
        messages=request.messages,
        tools=tools_as_sent(body) if request.tools else None,
        documents=request.documents,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        template=request.chat_template,
        variables={
            **({} if request.reasoning_effort is None else {"reasoning_effort": request.reasoning_effort}),
            **own_variables(request.chat_template_kwargs),
        },
    )
    prompt = chat_prompt(
        renderer,
        chat,
        add_special_tokens=request.add_special_tokens,
        cut=truncation(profile, request, asked),
        with_offsets=bool(request.return_token_offsets),
    )
    default = profile.generation_defaults.get("max_tokens")
    max_tokens = room(profile, prompt, where="messages", asked=asked, asked_at=asked_at, default=default)
    answer_id = f"chatcmpl-{request.request_id or request_id}"
    answer = generate_request(renderer, request, prompt, answer_id, lambda: sampling.for_chat(renderer, request, max_tokens))
    return answer.wire()


@dataclass(frozen=True)
class Chat:
    """A chat to be written as a prompt. `template` is one that the client brought; `tools` are as it sent them."""

    messages: list[ChatMessage]
    tools: Sequence[JsonObject] | None
    documents: list[JsonObject] | None
    add_generation_prompt: bool
    continue_final_message: bool
    template: str | None
    variables: JsonObject


def chat_prompt(
    renderer: Renderer,
    chat: Chat,
    *,
    add_special_tokens: bool,
    cut: Truncation | None = None,
    with_offsets: bool = False,
    bounded: bool = True,
) -> Prompt:
    """By the template, or in harmony. Raises `BadRequest`."""
    profile = renderer.profile
    if renderer.harmony is None:
        return from_text(
            profile,
            prompt_text(renderer, chat),
            where="messages",
            add_special_tokens=add_special_tokens,
            cut=cut,
            with_offsets=with_offsets,
            bounded=bounded,
        )
    for name, given in (("chat_template", chat.template), ("documents", chat.documents), ("return_token_offsets", with_offsets)):
        if given:
            raise BadRequest(f"{name}: this model is prompted in harmony, which has none", param=name)
    if bounded and cut is None:
        check_size(profile, sum(map(text_size, chat.messages)), where="messages")
    ids = renderer.harmony.render(
        chat.messages,
        tools=chat.tools,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        variables=chat.variables,
    )
    return from_ids(profile, ids, where="messages", cut=cut)


def prompt_text(renderer: Renderer, chat: Chat) -> str:
    """What the chat template makes of a chat. Raises `BadRequest`."""
    chosen = _template(renderer, chat.template)
    messages = for_template(chat.messages, habits(chosen.chosen(with_tools=chat.tools is not None)))
    try:
        return chosen.render(
            messages,
            tools=chat.tools,
            documents=chat.documents,
            add_generation_prompt=chat.add_generation_prompt and not chat.continue_final_message,
            continue_final_message=chat.continue_final_message,
            variables={**renderer.profile.special_tokens, **chat.variables},
        )
    except TemplateFailed as error:
        raise BadRequest(f"messages: {error}", param="messages") from error


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


def _template(renderer: Renderer, given: str | None) -> ChatTemplate:
    if given is None:
        if renderer.profile.chat_template is None:
            raise BadRequest(
                "messages: this model has no chat template; the server's --chat-template names one, or use /v1/completions",
                param="messages",
            )
        return renderer.profile.chat_template
    if not renderer.trust_templates:
        raise BadRequest(
            "chat_template: this server takes no templates from requests; --trust-request-chat-template allows them",
            param="chat_template",
        )
    try:
        return ChatTemplate.of(given, "chat_template")
    except BrokenModel as error:
        raise BadRequest(str(error), param="chat_template") from error
