"""Prompts that a chat template writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from model_profile import TemplateInput
from model_profile.provenance import OUTSIDE, Traced, message_of, runs, source, untraced
from protocol.chat import AssistantMessage, UserMessage
from protocol.errors import BadRequest
from render_service.control_tokens import Unwritable
from render_service.conversation import Conversation
from render_service.encoding import FORCED, Encoded, Marked, TooManyTokens, common, differs_from, ends_with
from render_service.guests import blaming
from render_service.prompt import encoded, too_long
from render_service.renderer import Renderer, Template
from render_service.template_input import for_template

_ASKED, _ANSWERED = "Zq0asked", "Zq0answered"


@dataclass(frozen=True)
class TemplateWriter:
    renderer: Renderer
    template: Template

    def text(self, conversation: Conversation) -> str:
        """What the template writes; traced where the client's text could have a part in a control token. Raises `BadRequest`."""
        given = self._input(conversation)
        return self._run(given, traced=self.renderer.guards_control_tokens and self._may_forge(given))

    def traced(self, conversation: Conversation) -> Traced:
        """Raises `BadRequest`."""
        text = self._run(self._input(conversation), traced=True)
        assert isinstance(text, Traced)
        return text

    def encoded(self, text: str, **how: Any) -> Encoded:
        """As `prompt.encoded` does. Raises `BadRequest`."""
        control_tokens = self.renderer.control_tokens
        try:
            if self.renderer.guards_control_tokens and isinstance(text, Traced) and control_tokens.forged(text):
                return control_tokens.encode(text, **how)
            return encoded(self.renderer, untraced(text), **how)
        except Unwritable as error:
            raise BadRequest(f"messages: {error}", param="messages") from error
        except TooManyTokens as error:
            raise too_long(self.renderer.profile, f"{error.count} tokens at least", "messages") from error

    def written(self, conversation: Conversation, *, bounded: bool = True) -> Marked:
        """The whole prompt. Raises `BadRequest`."""
        text = self.traced(conversation)
        limit = self.renderer.profile.max_model_len if bounded else None
        encoded = self.encoded(text, add_special_tokens=False, with_offsets=True, limit=limit)
        return self._marked(encoded, text, self._length_of_messages(conversation, text))

    def following(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> Marked:
        """What comes behind `ids`, which are those of the first `covered` messages: the end of an assistant's turn that lacks it,
        the other messages, the next turn's beginning. Raises `BadRequest`."""
        text = self.traced(conversation)
        length = self._length_of_messages(conversation, text)
        begin = self._beginning(text, covered, length)
        rest = text[begin:]
        if isinstance(conversation.messages[covered - 1], AssistantMessage):
            rest = self._end_lacking(ids, text[:begin], covered - 1) + rest
        elif opened := self._opened(conversation, covered, ids):
            if covered == len(conversation.messages) or not isinstance(conversation.messages[covered], AssistantMessage):
                raise BadRequest(
                    f"prefix: its ids end where the assistant's turn begins, so messages.{covered} must be the assistant's",
                    param="prefix",
                )
            rest = rest[common(opened, untraced(rest)) :]
        return self._marked(self._encoded_behind(rest), rest, len(rest) - (len(text) - length))

    def opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> bool:
        """Whether `ids` end with an assistant's turn that has begun, as far as the template begins it. Raises `BadRequest`."""
        if isinstance(conversation.messages[covered - 1], AssistantMessage):
            return False
        beginning = self._next_turn(conversation.first(covered, add_generation_prompt=True))
        return not beginning or ends_with(ids, self._encoded_behind(beginning).ids, spare=FORCED)

    def rewritten_from(self, conversation: Conversation, ids: list[int]) -> int | None:
        """The first message whose text would be another than in `ids` if all were written anew. Raises `BadRequest`."""
        tokenizer = self.renderer.profile.tokenizer
        text = self.traced(conversation)
        normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer is not None else untraced(text)
        if not self.renderer.profile.byte_level or normalized != text:
            return differs_from(self.written(conversation), ids, tokenizer)
        # Text comes back out of such a tokenizer as it went in, so it need not be tokenized to know what it will be.
        (as_it_is,) = tokenizer.decode_batch([ids], skip_special_tokens=False)
        return None if as_it_is == text else message_of(text.sources[min(common(as_it_is, text), len(text) - 1)])

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
        messages = ([value for key, value in message.items() if key != "role"] for message in given.messages)
        supplied = [messages, given.tools or (), given.documents or (), given.variables]
        return self.renderer.control_tokens.may_be_spelled_by(supplied, self.template.literals)

    def _marked(self, encoded: Encoded, text: Traced, length: int) -> Marked:
        """Ids with their messages; what lies behind the first `length` characters is of none: it begins the next turn."""
        assert encoded.offsets is not None
        messages = [
            OUTSIDE if added or start >= length else message_of(text.sources[start])
            for added, (start, _) in zip(encoded.added, encoded.offsets, strict=True)
        ]
        return Marked(encoded.ids, messages)

    def _length_of_messages(self, conversation: Conversation, text: Traced) -> int:
        """Where the messages end in `text` and the next turn's beginning is written."""
        if not conversation.add_generation_prompt or conversation.continue_final_message:
            return len(text)
        alone = self.text(replace(conversation, add_generation_prompt=False))
        return len(alone) if text.startswith(alone) else len(text)

    def _beginning(self, text: Traced, covered: int, length: int) -> int:
        """Where in `text` the messages from `covered` on begin: behind the last character of those before."""
        ends = [at + len(run) for at, run in runs(text) if 0 <= message_of(run[0]) < covered]
        return min(max(ends, default=0), length)

    def _end_lacking(self, ids: Sequence[int], before: Traced, message: int) -> Traced:
        """What of the template's end of an assistant's turn is not yet in `ids`. `before`: what it would write up to there."""
        end = self._turn_end
        whole = Traced(end, source(message, supplied=False) * len(end))
        own = self.renderer.control_tokens.find(end)
        if ends_with(ids, self._encoded_behind(whole).ids):
            return whole[len(end) :]
        closes = {*self.renderer.profile.eos_token_ids, *(found.id for found in own[:1])}
        if not ids or ids[-1] not in closes:
            return whole
        # Where the template ends this turn in another way, as behind a call, nothing of its usual end is due.
        return whole[own[0].end if own else 0 :] if before.endswith(end) else whole[len(end) :]

    @cached_property
    def _turn_end(self) -> str:
        """What the template writes behind an assistant's text."""
        asked, answered = UserMessage(role="user", content=_ASKED), AssistantMessage(role="assistant", content=_ANSWERED)
        try:
            text = self.text(Conversation([asked, answered], add_generation_prompt=False))
        except BadRequest:  # a template that wants more of a chat: what it ends turns with is not known, and none is added
            return ""
        return text[text.rindex(_ANSWERED) + len(_ANSWERED) :] if _ANSWERED in text else ""

    def _opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> str:
        """The beginning of the assistant's turn, if it is what `ids` end with."""
        beginning = self._next_turn(conversation.first(covered, add_generation_prompt=True))
        return untraced(beginning) if beginning and ends_with(ids, self._encoded_behind(beginning).ids) else ""

    def _next_turn(self, conversation: Conversation) -> Traced:
        text = self.traced(conversation)
        return text[self._length_of_messages(conversation, text) :]

    def _encoded_behind(self, text: Traced) -> Encoded:
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

    @cached_property
    def _anchor(self) -> tuple[str, int] | None:
        """A control token that swallows no white space."""
        return self.renderer.control_tokens.one_to_stand_behind()
