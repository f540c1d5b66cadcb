"""What a chat template writes of a conversation, as text and as ids."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from model_profile import TemplateInput
from model_profile.provenance import OUTSIDE, Traced, message_of, runs, untraced
from protocol.chat import AssistantMessage
from protocol.errors import BadRequest
from render_service.control_tokens import Unwritable
from render_service.conversation import Conversation
from render_service.encoding import Encoded, Marked, TooManyTokens
from render_service.guests import blaming
from render_service.prompt import encoded, too_long
from render_service.renderer import Renderer, Template
from render_service.template_input import for_template


@dataclass(frozen=True)
class TemplateText:
    """Every method raises `BadRequest`."""

    renderer: Renderer
    template: Template

    def text(self, conversation: Conversation) -> str:
        """What the template writes; traced where the client's text could have a part in a control token."""
        given = self._input(conversation)
        return self._run(given, traced=self.renderer.guards_control_tokens and self._may_forge(given))

    def plain(self, conversation: Conversation) -> str:
        """The same, never traced: for looking at."""
        return self._run(self._input(conversation), traced=False)

    def traced(self, conversation: Conversation) -> Traced:
        text = self._run(self._input(conversation), traced=True)
        assert isinstance(text, Traced)
        return text

    def length_of_messages(self, conversation: Conversation, text: str) -> int:
        """Where the messages end in `text` and the next turn's beginning is written."""
        if not conversation.add_generation_prompt or conversation.continue_final_message:
            return len(text)
        alone = self.plain(replace(conversation, add_generation_prompt=False))
        return len(alone) if text.startswith(alone) else len(text)

    def next_turn(self, conversation: Conversation) -> Traced:
        """The beginning of the next turn."""
        text = self.traced(conversation)
        return text[self.length_of_messages(conversation, text) :]

    def beginning(self, conversation: Conversation, text: Traced, covered: int, length: int) -> int:
        """Where in `text`, whose messages end at `length`, those from `covered` on begin."""
        ends = [at + len(run) for at, run in runs(text) if 0 <= message_of(run[0]) < covered]
        end = min(max(ends, default=0), length)
        answered = isinstance(conversation.messages[covered - 1], AssistantMessage)
        if answered and end < length and message_of(text.sources[end]) >= covered:
            return end
        alone = self.alone(conversation, covered)
        if not alone or not text.startswith(alone):
            return end
        # An answer's ids have an end of their own, which the template may leave out where nothing follows.
        return max(end, len(alone)) if answered else len(alone)

    def alone(self, conversation: Conversation, covered: int) -> str:
        """The first `covered` messages as the template writes them if nothing follows; empty where it refuses that."""
        try:
            return self.plain(conversation.first(covered, add_generation_prompt=False))
        except BadRequest:
            return ""

    def encoded(self, text: str, **how: Any) -> Encoded:
        """As `prompt.encoded` does."""
        control_tokens = self.renderer.control_tokens
        try:
            if self.renderer.guards_control_tokens and isinstance(text, Traced) and control_tokens.forged(text):
                return control_tokens.encode(text, **how)
            return encoded(self.renderer, untraced(text), **how)
        except Unwritable as error:
            raise BadRequest(f"messages: {error}", param="messages") from error
        except TooManyTokens as error:
            raise too_long(self.renderer.profile, f"{error.count} tokens at least", "messages") from error

    def encoded_behind(self, text: str) -> Encoded:
        """The ids of text that stands behind a control token: some tokenizers write the beginning of a text in a way of its own."""
        anchor = self._anchor
        if anchor is None or not text:
            return self.encoded(text, add_special_tokens=False, with_offsets=True)
        content, token = anchor
        behind = self.encoded(content + text, add_special_tokens=False, with_offsets=True)
        assert behind.ids[0] == token
        assert behind.offsets is not None
        offsets = [(max(0, start - len(content)), max(0, end - len(content))) for start, end in behind.offsets]
        return Encoded(behind.ids[1:], behind.added[1:], offsets[1:])

    def marked(self, encoded: Encoded, text: Traced, length: int) -> Marked:
        """Ids with their messages; what lies behind the first `length` characters is of none: it begins the next turn."""
        assert encoded.offsets is not None
        messages = [
            OUTSIDE if added or start >= length else message_of(text.sources[start])
            for added, (start, _) in zip(encoded.added, encoded.offsets, strict=True)
        ]
        return Marked(encoded.ids, messages)

    def _run(self, given: TemplateInput, *, traced: bool) -> str:
        with blaming():
            return self.template.trace(given) if traced else self.template.write(given)

    def _input(self, conversation: Conversation) -> TemplateInput:
        with blaming():
            habits = self.template.habits(with_tools=conversation.tools is not None)
        return TemplateInput(
            for_template(conversation.messages, habits),
            tools=conversation.tools,
            documents=conversation.documents,
            add_generation_prompt=conversation.add_generation_prompt and not conversation.continue_final_message,
            continue_final_message=conversation.continue_final_message,
            special_tokens=self.renderer.profile.special_tokens,
            variables=conversation.variables,
        )

    def _may_forge(self, given: TemplateInput) -> bool:
        # Roles are words of the server's own.
        messages = [{key: value for key, value in message.items() if key != "role"} for message in given.messages]
        supplied = [messages, given.tools or (), given.documents or (), given.variables]
        return self.renderer.control_tokens.may_be_spelled_by(supplied, self.template.literals)

    @cached_property
    def _anchor(self) -> tuple[str, int] | None:
        """A control token that swallows no white space."""
        return self.renderer.control_tokens.one_to_stand_behind()
