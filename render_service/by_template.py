"""Prompts that a chat template writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_profile.provenance import Traced, message_of, untraced
from protocol.chat import AssistantMessage
from protocol.errors import BadRequest
from render_service.conversation import Conversation
from render_service.encoding import Marked, common, differs_from, ends_with
from render_service.template_text import TemplateText
from render_service.template_turns import ANSWER, ANSWERED, ASKED, TemplateTurns, turns_of
from render_service.token_identity import answer_must_follow, may_have_begun


@dataclass(frozen=True)
class TemplateWriter:
    template: TemplateText

    @property
    def _turns(self) -> TemplateTurns:
        return turns_of(self.template)

    def written(self, conversation: Conversation, *, bounded: bool = True) -> Marked:
        """The whole prompt. Raises `BadRequest`."""
        text = self.template.traced(conversation)
        limit = self.template.renderer.profile.max_model_len if bounded else None
        encoded = self.template.encoded(text, add_special_tokens=False, with_offsets=True, limit=limit)
        return self.template.marked(encoded, text, self.template.length_of_messages(conversation, text))

    def before_first(self, conversation: Conversation) -> Marked:
        """What the template writes before the text of an answer that is the first message. Raises `BadRequest`."""
        # Nothing asked for it, so no turn's beginning was ever written for the model alone: it is that of a chat's history.
        text = self.template.traced(replace(conversation, messages=[ANSWERED, ASKED]).first(2, add_generation_prompt=False))
        head = text[: max(0, text.find(ANSWER))]
        return self.template.marked(self.template.encoded(head, add_special_tokens=False, with_offsets=True), head, 0)

    def following(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> Marked:
        """What comes behind `ids`, which are those of the first `covered` messages: the end of an assistant's turn that lacks it,
        the other messages, the next turn's beginning. Raises `BadRequest`."""
        text = self.template.traced(conversation)
        length = self.template.length_of_messages(conversation, text)
        begin = self.template.beginning(conversation, text, covered, length)
        rest = text[begin:]
        begun = self._begun(conversation, text, covered, ids)
        if begun is not None:
            answer_must_follow(conversation, covered)
            rest = self._turns.rest_behind(rest, begun)
        elif isinstance(conversation.messages[covered - 1], AssistantMessage):
            lacking = self._turns.end_lacking(ids, text[:begin], covered - 1)
            rest = self._turns.without_what_ended(lacking + rest, ids)
        else:
            self._check_end(conversation, text[:begin], covered, ids)
        return self.template.marked(self.template.encoded_behind(rest), rest, len(rest) - (len(text) - length))

    def opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> bool:
        """Whether `ids` end within an assistant's turn, whose answer is yet to come. Raises `BadRequest`."""
        asked = conversation.first(covered, add_generation_prompt=True)
        text = self.template.traced(asked)
        if self._begun(asked, text, covered, ids) is not None:
            return True
        # A template that begins no turn leaves that to the model.
        answered = isinstance(conversation.messages[covered - 1], AssistantMessage)
        return not answered and self.template.length_of_messages(asked, text) == len(text)

    def spans(self, ids: Sequence[int]) -> list[range]:
        """The places in `ids` where the assistant has the word."""
        return self._turns.spans(ids)

    def rewritten_from(self, conversation: Conversation, ids: list[int]) -> int | None:
        """The first message whose text would be another than in `ids` if all were written anew. Raises `BadRequest`."""
        profile = self.template.renderer.profile
        tokenizer = profile.tokenizer
        text = self.template.traced(conversation)
        normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer is not None else untraced(text)
        if not profile.byte_level or normalized != text:
            return differs_from(self.written(conversation), ids, tokenizer)
        # Text comes back out of such a tokenizer as it went in, so it need not be tokenized to know what it will be.
        (as_it_is,) = tokenizer.decode_batch([ids], skip_special_tokens=False)
        return None if as_it_is == text else message_of(text.sources[min(common(as_it_is, text), len(text) - 1)])

    def _begun(self, conversation: Conversation, text: Traced, covered: int, ids: Sequence[int]) -> str | None:
        last = conversation.messages[covered - 1]
        begun = may_have_begun(last, just_begun=self._turns.just_begun(ids))
        return self._turns.begun(conversation, text, covered, ids) if begun else None

    def _check_end(self, conversation: Conversation, before: Traced, covered: int, ids: Sequence[int]) -> None:
        """Refuses ids that end a turn in which the next message stands, too, as the results of parallel calls do: what the template
        writes for it does not begin a turn. `before`: what it would write for what is covered. Raises `BadRequest`."""
        alone = self.template.alone(conversation, covered)
        own = self.template.renderer.control_tokens.find(alone)
        end = alone[own[-1].start :] if own else ""
        if end and not before.endswith(end) and ends_with(ids, self.template.encoded_behind(end).ids):
            raise BadRequest(
                f"prefix: its ids end a turn that goes on with messages.{covered}: let it end before that turn, or behind it",
                param="prefix",
            )
