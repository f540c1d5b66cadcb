"""How a chat template begins and ends the assistant's turns, learned by trying it on a few words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from model_profile.provenance import Traced, is_supplied, message_of, runs, source, untraced
from protocol.chat import AssistantMessage, UserMessage
from protocol.errors import BadRequest
from render_service.conversation import Conversation
from render_service.encoding import common, ends_with
from render_service.template_text import TemplateText
from render_service.turns import last_begun, spans
from render_service.variables import thinking_variables

ANSWER = "Zq0answered"
ASKED, ANSWERED = UserMessage(role="user", content="Zq0asked"), AssistantMessage(role="assistant", content=ANSWER)
_TALK = Conversation([ASKED, ANSWERED, ASKED], add_generation_prompt=False)


@dataclass(frozen=True)
class TemplateTurns:
    written: TemplateText

    def begun(self, conversation: Conversation, text: Traced, covered: int, ids: Sequence[int]) -> str | None:
        """What `ids`, those of the first `covered` messages, have of the assistant's turn that they begin; None where they begin
        none. `text` is the conversation's. Raises `BadRequest`."""
        marks = {*self._marks, *self._first_mark(text, covered - 1)}
        at = last_begun(ids, self.start, marks)
        if at is not None:
            return self._decoded(ids[at:])
        beginning = untraced(self.written.next_turn(conversation.first(covered, add_generation_prompt=True)))
        return beginning if beginning and ends_with(ids, self.written.encoded_behind(beginning).ids) else None

    def just_begun(self, ids: Sequence[int]) -> bool:
        """Whether `ids` end with the beginning of an assistant's turn, and no more of it."""
        return any(way and ends_with(ids, way) for way in self._habits)

    def rest_behind(self, rest: Traced, begun: str) -> Traced:
        """What is left of `rest`, which goes on with an assistant's turn, where `begun` of that turn is there."""
        head = untraced(rest[: next((at for at, run in runs(rest) if is_supplied(run[0])), len(rest))])
        start = self._decoded(self.start)
        # What ended the turn before is there too.
        begins = max(head.find(start), 0) if begun.startswith(start) else 0
        same = common(head[begins:], begun)
        if same < min(len(head) - begins, len(begun)):
            # It was begun in another way, of which nothing but what all ways have in common is known.
            same = len(start) if head.startswith(start, begins) else 0
        return rest[begins + same :]

    def spans(self, ids: Sequence[int]) -> list[range]:
        """The places in `ids` where the assistant has the word; all, where the template does not mark that by control tokens."""
        return list(spans(ids, self.start, self._marks)) if self.start else [range(len(ids))]

    def end_lacking(self, ids: Sequence[int], before: Traced, message: int) -> Traced:
        """What of the template's end of an assistant's turn is not yet in `ids`. `before`: what it would write up to there."""
        whole = Traced(self.end, source(message, supplied=False) * len(self.end))
        own = self.written.renderer.control_tokens.find(self.end)
        if ends_with(ids, self.written.encoded_behind(whole).ids):
            return whole[len(self.end) :]
        if not ids or ids[-1] not in self._closes:
            return whole
        # Where the template ends this turn in another way, as behind a call, nothing of its usual end is due.
        return whole[own[0].end if own else 0 :] if before.endswith(self.end) else whole[len(self.end) :]

    def without_what_ended(self, rest: Traced, ids: Sequence[int]) -> Traced:
        """`rest` behind an answer's ids. Some models end a turn with the token that begins the next one, which is then there."""
        first = self.written.renderer.control_tokens.find(rest)[:1] if ids and ids[-1] in self._closes else ()
        return rest[first[0].end :] if first and (first[0].start, first[0].id) == (0, ids[-1]) else rest

    @cached_property
    def end(self) -> str:
        """What the template writes behind an assistant's text."""
        if self._talk is None:
            return ""
        text, at = self._talk
        return untraced(text[at + len(ANSWER) : self.written.beginning(_TALK, text, 2, len(text))])

    @cached_property
    def start(self) -> list[int]:
        """What the assistant's turn begins with in any case, and no other: in history, and where the model is to think and where it
        is not. Empty where that is no control token, or not known."""
        if self._talk is None:
            return []
        text, at = self._talk
        begin = self.written.beginning(_TALK, text, 1, len(text))
        ways = [self.written.encoded_behind(untraced(text[begin:at])).ids, *self._habits]
        ways = [way for way in ways if way]
        start = ways[0][: min(common(ways[0], way) for way in ways)] if ways else []
        asked = self.written.encoded_behind(text[:begin]).ids
        tells = {*start[:1]} <= self.written.renderer.control_tokens.ids and not [*spans(asked, start, start[:1])]
        return start if tells else []

    @cached_property
    def _habits(self) -> list[list[int]]:
        """In how many ways the next turn is begun."""
        return [
            self.written.encoded_behind(self._next_turn_with(variables)).ids
            for variables in ({}, thinking_variables(True), thinking_variables(False))
        ]

    @cached_property
    def _talk(self) -> tuple[Traced, int] | None:
        """A few words, and where in them the assistant's begin; None for a template that wants more of a chat."""
        try:
            text = self.written.traced(_TALK)
        except BadRequest:
            return None
        at = text.find(ANSWER)
        return None if at < 0 else (text, at)

    def _next_turn_with(self, variables: dict[str, bool]) -> str:
        try:
            return untraced(self.written.next_turn(Conversation([ASKED], variables=variables)))
        except BadRequest:
            return ""

    @cached_property
    def _closes(self) -> frozenset[int]:
        own = self.written.renderer.control_tokens.find(self.end)
        return frozenset((*self.written.renderer.profile.eos_token_ids, *(found.id for found in own[:1])))

    @property
    def _marks(self) -> frozenset[int]:
        return self._closes.union(self.start[:1])

    def _first_mark(self, text: Traced, message: int) -> list[int]:
        """The control token that the template begins a message with."""
        own = self.written.renderer.control_tokens.own(text)
        return [found.id for found in own if message_of(text.sources[found.start]) == message][:1]

    def _decoded(self, ids: Sequence[int]) -> str:
        (text,) = self.written.renderer.profile.tokenizer.decode_batch([list(ids)], skip_special_tokens=False)
        return text


@lru_cache(maxsize=64)
def turns_of(written: TemplateText) -> TemplateTurns:
    """What was learned is kept."""
    return TemplateTurns(written)
