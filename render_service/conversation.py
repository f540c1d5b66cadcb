"""A conversation to be written as a prompt: what every request shape is turned into, and all that rendering knows of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.chat import ChatMessage

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """`tools` are OpenAI's, in the client's own order of keys, with nothing added or left out: templates print them as they are.
    `template` is one that the client brought. `variables` are what templates see beside all this."""

    messages: Sequence[ChatMessage]
    tools: Sequence[JsonObject] | None = None
    documents: Sequence[JsonObject] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
