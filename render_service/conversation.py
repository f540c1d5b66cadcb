"""A conversation to be written as a prompt: what every request shape is turned into, and all that rendering knows of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.chat import AssistantMessage, ChatMessage, Prefix

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """`tools` are OpenAI's, in the client's own order of keys, with nothing added or left out: templates print them as they are.
    `template` is one that the client brought. `variables` are what templates see beside all this.

    `prefix` are ids for the first messages. With `keep_ids` the prompt goes on from them and from those of messages; without,
    all of it is written anew.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[JsonObject] | None = None
    documents: Sequence[JsonObject] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    prefix: Prefix | None = None
    keep_ids: bool = True

    @property
    def brings_ids(self) -> bool:
        return self.keep_ids and (self.prefix is not None or any(sampled_ids(message) is not None for message in self.messages))

    def first(self, count: int, *, add_generation_prompt: bool) -> "Conversation":
        """The first `count` messages."""
        return replace(
            self, messages=self.messages[:count], add_generation_prompt=add_generation_prompt, continue_final_message=False
        )


def sampled_ids(message: ChatMessage) -> list[int] | None:
    """The ids that were sampled for a message, where the request brings them."""
    return message.token_ids if isinstance(message, AssistantMessage) else None
