"""Prompts of gpt-oss, written in harmony."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.chat import AssistantMessage
from protocol.errors import BadRequest
from render_service.conversation import Conversation
from render_service.encoding import FORCED, Marked, differs_from, ends_with

if TYPE_CHECKING:  # its library is loaded for models that need it
    from render_service.harmony import Harmony


@dataclass(frozen=True)
class HarmonyWriter:
    harmony: "Harmony"

    def written(self, conversation: Conversation, *, bounded: bool = True) -> Marked:
        """The whole prompt. Raises `BadRequest`."""
        for name, given in (("chat_template", conversation.template), ("documents", conversation.documents)):
            if given:
                raise BadRequest(f"{name}: this model is prompted in harmony, which has none", param=name)
        return self.harmony.render(
            conversation.messages,
            tools=conversation.tools,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            variables=conversation.variables,
        )

    def following(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> Marked:
        """Raises `BadRequest`."""
        messages = conversation.messages
        asked = not isinstance(messages[covered - 1], AssistantMessage)
        begun = asked and ends_with(ids, self.harmony.beginning)
        if begun and (covered == len(messages) or not isinstance(messages[covered], AssistantMessage)):
            raise BadRequest(
                f"prefix: its ids end where the assistant's turn begins, so messages.{covered} must be the assistant's",
                param="prefix",
            )
        rest = self.harmony.following(
            messages,
            covered,
            ids,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
        )
        known = len(self.harmony.beginning) if begun else 0
        return Marked(rest.ids[known:], rest.messages[known:])

    def opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> bool:
        """Whether `ids` end with an assistant's turn that has begun."""
        asked = not isinstance(conversation.messages[covered - 1], AssistantMessage)
        return asked and ends_with(ids, self.harmony.beginning, spare=FORCED)

    def rewritten_from(self, conversation: Conversation, ids: list[int]) -> int | None:
        """Raises `BadRequest`."""
        return differs_from(self.written(conversation), ids, self.harmony.plain)
