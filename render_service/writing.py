"""A conversation written as a prompt: by the chat template, or in harmony; anew, or going on from ids that it brings."""

from dataclasses import dataclass, replace

from protocol.errors import BadRequest
from render_service.by_template import TemplateWriter
from render_service.conversation import Conversation, sampled_ids
from render_service.guests import blaming
from render_service.in_harmony import HarmonyWriter
from render_service.prompt import Prompt, Truncation, check_ids, check_size, check_text, cut_ids, of
from render_service.renderer import Renderer, Template
from render_service.template_input import text_size
from render_service.template_text import TemplateText
from render_service.token_identity import Writer, extend

MAX_MESSAGES = 2**18
"""More than any context holds; a character's source has room for about twice as many."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of a prompt beside its ids. `bounded`: one that cannot fit the context is refused before it is tokenized."""

    add_special_tokens: bool = False
    cut: Truncation | None = None
    offsets: bool = False
    sources: bool = False
    bounded: bool = True

    @property
    def whole(self) -> bool:
        """Whether all of it must fit the context."""
        return self.bounded and self.cut is None


def write(renderer: Renderer, conversation: Conversation, wanted: Wanted) -> Prompt:
    """The conversation's prompt. Raises `BadRequest`."""
    if len(conversation.messages) > MAX_MESSAGES:
        raise BadRequest(
            f"messages: there are {len(conversation.messages)}, and no more than {MAX_MESSAGES} are taken", param="messages"
        )
    if renderer.harmony is not None and wanted.whole:
        check_size(renderer.profile, sum(map(text_size, conversation.messages)), where="messages")
    if conversation.brings_ids:
        return _extended(renderer, conversation, wanted)
    if renderer.harmony is None and not wanted.sources:
        return _from_text(renderer, conversation, wanted)
    if wanted.offsets or wanted.add_special_tokens:
        name = "return_token_offsets" if wanted.offsets else "add_special_tokens"
        raise BadRequest(f"{name}: not for this model, which is prompted in harmony, nor with return_token_sources", param=name)
    written = _writer(renderer, conversation).written(conversation, bounded=wanted.whole)
    prompt = Prompt(written.ids)
    if wanted.sources:
        prompt = replace(prompt, messages=written.messages, sampled=[False] * len(written.ids))
    return cut_ids(prompt, wanted.cut)


def _from_text(renderer: Renderer, conversation: Conversation, wanted: Wanted) -> Prompt:
    writer = TemplateText(renderer, chosen_template(renderer, conversation.template))
    text = writer.text(conversation)
    check_text(renderer.profile, text, where="messages", bounded=wanted.whole)
    limit = renderer.profile.max_model_len if wanted.whole else None
    encoded = writer.encoded(text, add_special_tokens=wanted.add_special_tokens, with_offsets=wanted.offsets, limit=limit)
    return of(encoded, wanted.cut)


def _extended(renderer: Renderer, conversation: Conversation, wanted: Wanted) -> Prompt:
    for name, given in (
        ("return_token_offsets", wanted.offsets),
        ("add_special_tokens", wanted.add_special_tokens),
        ("truncate_prompt_tokens", wanted.cut),
    ):
        if given:
            raise BadRequest(f"{name}: not with ids of earlier turns, which are kept as they are", param=name)
    if conversation.prefix is not None:
        check_ids(renderer.profile, conversation.prefix.token_ids, "prefix.token_ids")
    for index, message in enumerate(conversation.messages):
        check_ids(renderer.profile, sampled_ids(message) or (), f"messages.{index}.token_ids")
    extended = extend(_writer(renderer, conversation), conversation)
    prompt = Prompt(extended.prompt.ids, identity=extended.identity)
    return replace(prompt, messages=extended.prompt.messages, sampled=extended.sampled) if wanted.sources else prompt


def _writer(renderer: Renderer, conversation: Conversation) -> Writer:
    if renderer.harmony is not None:
        return HarmonyWriter(renderer.harmony)
    return TemplateWriter(TemplateText(renderer, chosen_template(renderer, conversation.template)))


def chosen_template(renderer: Renderer, given: str | None) -> Template:
    """The model's, or the one that the client brought. Raises `BadRequest`."""
    if given is None:
        if renderer.profile.chat_template is None:
            raise BadRequest(
                "messages: this model has no chat template; the server's --chat-template names one, or use /v1/completions",
                param="messages",
            )
        return renderer.profile.chat_template
    with blaming():
        return renderer.guest_template(given)
