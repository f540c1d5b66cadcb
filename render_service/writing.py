"""A conversation written as a prompt: by the chat template, or in harmony."""

from model_profile import BrokenModel, ChatTemplate, TemplateFailed, TemplateInput
from model_profile.provenance import Traced, untraced
from model_profile.template_habits import habits
from protocol.errors import BadRequest
from render_service.control_tokens import ControlTokens, Unwritable
from render_service.conversation import Conversation
from render_service.encoding import encode
from render_service.prompt import Prompt, Truncation, check_size, check_text, from_ids, of
from render_service.renderer import Renderer
from render_service.template_input import for_template, text_size


def write(
    renderer: Renderer,
    conversation: Conversation,
    *,
    add_special_tokens: bool = False,
    cut: Truncation | None = None,
    with_offsets: bool = False,
    bounded: bool = True,
) -> Prompt:
    """The conversation's prompt. Raises `BadRequest`; also for one that cannot fit the context, if it must (`bounded`)."""
    if renderer.harmony is not None:
        return _in_harmony(renderer, conversation, cut=cut, with_offsets=with_offsets, bounded=bounded)
    return _by_template(
        renderer, conversation, add_special_tokens=add_special_tokens, cut=cut, with_offsets=with_offsets, bounded=bounded
    )


def _in_harmony(
    renderer: Renderer, conversation: Conversation, *, cut: Truncation | None, with_offsets: bool, bounded: bool
) -> Prompt:
    unknown = {
        "chat_template": conversation.template,
        "documents": conversation.documents,
        "return_token_offsets": with_offsets,
    }
    for name, given in unknown.items():
        if given:
            raise BadRequest(f"{name}: this model is prompted in harmony, which has none", param=name)
    if bounded and cut is None:
        check_size(renderer.profile, sum(map(text_size, conversation.messages)), where="messages")
    assert renderer.harmony is not None
    ids = renderer.harmony.render(
        conversation.messages,
        tools=conversation.tools,
        add_generation_prompt=conversation.add_generation_prompt,
        continue_final_message=conversation.continue_final_message,
        variables=conversation.variables,
    )
    return from_ids(renderer.profile, ids, where="messages", cut=cut)


def _by_template(
    renderer: Renderer,
    conversation: Conversation,
    *,
    add_special_tokens: bool,
    cut: Truncation | None,
    with_offsets: bool,
    bounded: bool,
) -> Prompt:
    profile, control_tokens = renderer.profile, renderer.control_tokens
    template = chosen_template(renderer, conversation.template)
    given = template_input(renderer, conversation, template)
    try:
        text = template.trace(given) if control_tokens and _may_forge(control_tokens, given) else template.write(given)
    except TemplateFailed as error:
        raise BadRequest(f"messages: {error}", param="messages") from error
    check_text(profile, text, where="messages", bounded=bounded and cut is None)
    if control_tokens is not None and isinstance(text, Traced) and control_tokens.forged(text):
        try:
            return of(control_tokens.encode(text, add_special_tokens=add_special_tokens), cut)
        except Unwritable as error:
            raise BadRequest(f"messages: {error}", param="messages") from error
    encoded = encode(profile.tokenizer, untraced(text), add_special_tokens=add_special_tokens, with_offsets=with_offsets)
    return of(encoded, cut)


def template_input(renderer: Renderer, conversation: Conversation, template: ChatTemplate) -> TemplateInput:
    """The conversation as `template` wants to see it. Raises `BadRequest`."""
    return TemplateInput(
        for_template(conversation.messages, habits(template.chosen(with_tools=conversation.tools is not None))),
        tools=conversation.tools,
        documents=conversation.documents,
        add_generation_prompt=conversation.add_generation_prompt and not conversation.continue_final_message,
        continue_final_message=conversation.continue_final_message,
        special_tokens=renderer.profile.special_tokens,
        variables=conversation.variables,
    )


def _may_forge(control_tokens: ControlTokens, given: TemplateInput) -> bool:
    # Roles are words of the server's own.
    messages = ([value for key, value in message.items() if key != "role"] for message in given.messages)
    return control_tokens.may_be_spelled_by([messages, given.tools or (), given.documents or (), given.variables])


def chosen_template(renderer: Renderer, given: str | None) -> ChatTemplate:
    """The model's, or the one that the client brought. Raises `BadRequest`."""
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
