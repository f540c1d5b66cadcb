"""Prompts of gpt-oss, written in harmony."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.errors import BadRequest
from render_service.conversation import Conversation
from render_service.encoding import Marked, common, differs_from, ends_with
from render_service.token_identity import answer_must_follow, may_have_begun
from render_service.turns import last_begun, spans

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
        begun = self._begun(conversation, covered, ids)
        if begun is not None:
            answer_must_follow(conversation, covered)
        rest = self.harmony.following(
            conversation.messages,
            covered,
            ids,
            begun=begun is not None,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
        )
        known = 0 if begun is None else self._known(rest.ids, ids[begun:])
        return Marked(rest.ids[known:], rest.messages[known:])

    def before_first(self, conversation: Conversation) -> Marked:
        """Raises `BadRequest`."""
        return self.written(conversation.first(0, add_generation_prompt=True))

    def opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> bool:
        """Whether `ids` end within an assistant's turn, whose answer is yet to come."""
        return self._begun(conversation, covered, ids) is not None

    def spans(self, ids: Sequence[int]) -> list[range]:
        """The places in `ids` where the assistant has the word."""
        return list(spans(ids, self.harmony.beginning, self._marks))

    def rewritten_from(self, conversation: Conversation, ids: list[int]) -> int | None:
        """Raises `BadRequest`."""
        return differs_from(self.written(conversation), ids, self.harmony.plain)

    def _begun(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> int | None:
        """Where in `ids` the assistant's turn begins that they end within."""
        beginning = self.harmony.beginning
        if not may_have_begun(conversation.messages[covered - 1], just_begun=ends_with(ids, beginning)):
            return None
        return last_begun(ids, beginning, self._marks)

    def _known(self, rest: Sequence[int], begun: Sequence[int]) -> int:
        """How much of `rest`, an assistant's turn, is there where `begun` of it is."""
        head = self.harmony.header(rest)
        same = common(head, begun)
        return same if same == min(len(head), len(begun)) else len(self.harmony.beginning)

    @property
    def _marks(self) -> frozenset[int]:
        return frozenset(self.harmony.beginning[:1])
