"""Token identity across turns (law L5): a prompt goes on from the very ids that were rendered and sampled before.

Text that is encoded anew need not give the ids that were sampled: a model may spell a word in other pieces, or a marker in letters,
and a template may drop what it once showed. So of what the request brings ids for, the prompt has these ids, and the template
writes only the rest: what ends a turn that was cut, the messages between, the beginning of the next turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from model_profile.provenance import OUTSIDE
from protocol.chat import AssistantMessage, ChatMessage
from protocol.errors import BadRequest
from protocol.generate import TokenIdentity
from render_service.conversation import Conversation, sampled_ids
from render_service.encoding import Marked

MAX_ANSWERS = 100
"""For each the conversation is written once, up to it."""


class Writer(Protocol):
    """Writes conversations as ids: by a chat template, or in harmony."""

    def written(self, conversation: Conversation, *, bounded: bool = True) -> Marked:
        """The whole prompt, as if there had been none before. `bounded`: one that is longer than the context is refused."""
        ...

    def following(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> Marked:
        """What comes behind `ids`, which are those of the first `covered` messages."""
        ...

    def before_first(self, conversation: Conversation) -> Marked:
        """What stands before the ids of an answer that is the first message."""
        ...

    def opened(self, conversation: Conversation, covered: int, ids: Sequence[int]) -> bool:
        """Whether `ids`, those of the first `covered` messages, end within an assistant's turn, whose answer is yet to come."""
        ...

    def spans(self, ids: Sequence[int]) -> list[range]:
        """The places in `ids` where the assistant has the word."""
        ...

    def rewritten_from(self, conversation: Conversation, ids: list[int]) -> int | None:
        """The first message whose text would be another than in `ids` if all were written anew; `OUTSIDE` is before them."""
        ...


@dataclass(frozen=True, slots=True)
class Extended:
    prompt: Marked
    sampled: list[bool]
    identity: TokenIdentity


def extend(writer: Writer, conversation: Conversation) -> Extended:
    """The prompt of a conversation that brings ids. Raises `BadRequest`."""
    messages = conversation.messages
    ids: list[int] = []
    owners: list[int] = []
    sampled: list[bool] = []

    def add(piece: Marked, *, own: bool = False) -> None:
        ids.extend(piece.ids)
        owners.extend(piece.messages)
        sampled.extend([own] * len(piece.ids))

    prefix = conversation.prefix
    covered = prefix.messages if prefix else 0
    answers = [place for place, message in enumerate(messages) if place >= covered and sampled_ids(message) is not None]
    if len(answers) > MAX_ANSWERS:
        raise BadRequest(
            f"messages: {len(answers)} of them bring ids, and no more than {MAX_ANSWERS} may that no prefix covers",
            param="messages",
        )
    if prefix:
        for piece, by_model in _told_apart(writer, messages[:covered], prefix.token_ids):
            add(piece, own=by_model)
    prefix_len = len(ids)
    for answer in answers:
        asked = conversation.first(answer, add_generation_prompt=True)
        if answer == 0:
            add(writer.before_first(conversation))
        elif covered == 0:
            add(writer.written(asked))
        elif answer != covered or not writer.opened(asked, covered, ids):
            add(writer.following(asked, covered, ids))
        own = sampled_ids(messages[answer])
        assert own is not None
        add(Marked.of(own, answer), own=True)
        prefix_len, covered = len(ids), answer + 1
    if covered < len(messages) or not conversation.continue_final_message:
        add(writer.following(conversation, covered, ids))
    identity = TokenIdentity(prefix_len=prefix_len, rewritten_from=writer.rewritten_from(conversation, ids))
    return Extended(Marked(ids, owners), sampled, identity)


def may_have_begun(message: ChatMessage, *, just_begun: bool) -> bool:
    """Whether ids that end with a message may have begun an assistant's turn behind it: behind the assistant's own only if they
    have `just_begun` one, for what they have more is of that message."""
    if not isinstance(message, AssistantMessage):
        return True
    says = message.content or message.reasoning or message.reasoning_content or message.refusal or message.tool_calls
    return just_begun and bool(says) and message.token_ids != []


def answer_must_follow(conversation: Conversation, covered: int) -> None:
    """For a prefix whose ids end within the assistant's turn. Raises `BadRequest`."""
    if covered == len(conversation.messages) or not isinstance(conversation.messages[covered], AssistantMessage):
        raise BadRequest(
            f"prefix: its ids end where the assistant's turn begins, so messages.{covered} must be the assistant's",
            param="prefix",
        )


def _told_apart(writer: Writer, messages: Sequence[ChatMessage], ids: list[int]) -> Iterator[tuple[Marked, bool]]:
    """A prefix in pieces, and of each whether the model sampled it: answers whose ids come with their messages are found there."""
    answers = [(place, own) for place, message in enumerate(messages) if (own := sampled_ids(message))]
    places = [place for span in writer.spans(ids) for place in span] if answers else []
    end = 0
    for message, own in answers:
        at = next((at for at in places if at >= end and ids[at] == own[0] and ids[at : at + len(own)] == own), None)
        if at is not None:
            yield Marked.of(ids[end:at], OUTSIDE), False
            yield Marked.of(own, message), True
            end = at + len(own)
    yield Marked.of(ids[end:], OUTSIDE), False
