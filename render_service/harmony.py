"""gpt-oss' prompts: a chat as harmony messages, rendered by openai-harmony.

The API's system and developer messages are harmony's developer instructions; harmony's own system message says date, effort and
channels. Of finished turns the reasoning is dropped, as the model was trained; within a turn that is still calling tools it
stays.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyError,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
)
from tokenizers import Tokenizer

from model_profile.harmony_vocabulary import harmony_encoding
from model_profile.provenance import OUTSIDE
from protocol.chat import AssistantMessage, ChatMessage, ToolMessage
from protocol.errors import BadRequest
from render_service.encoding import Marked
from render_service.template_input import arguments_text, texts

JsonObject = dict[str, Any]

EFFORTS = {"low": ReasoningEffort.LOW, "medium": ReasoningEffort.MEDIUM, "high": ReasoningEffort.HIGH}
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_NONCE_LENGTH = 8
_KEEP_AS_GIVEN = RenderConversationConfig(auto_drop_analysis=False)


LONG_TEXT = 16_384
"""Characters. The library encodes while it holds the interpreter's lock, which stops the event loop too (law L10); longer texts are
encoded by the tokenizer, which lets go of it."""


@dataclass(frozen=True)
class Harmony:
    """gpt-oss' way to write prompts. `plain` is its tokenizer, to which the text of a special token is text."""

    encoding: HarmonyEncoding
    plain: Tokenizer

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Harmony":
        """Raises `BrokenModel` if the vocabulary is not gpt-oss'."""
        plain = Tokenizer.from_str(tokenizer.to_str())
        plain.encode_special_tokens = True
        return cls(harmony_encoding(tokenizer), plain)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """What ends an assistant's turn: `<|return|>` after an answer, `<|call|>` after a call."""
        return tuple(sorted(self.encoding.stop_tokens_for_assistant_actions()))

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[JsonObject] | None,
        add_generation_prompt: bool,
        continue_final_message: bool,
        variables: Mapping[str, Any],
        date: str | None = None,
    ) -> Marked:
        """The prompt. `variables`: `reasoning_effort` and `model_identity`; `date` as 2025-11-29, by default today's (UTC).

        Raises `BadRequest` that names the field.
        """
        chat = _without_old_reasoning(_chat(messages, tools))
        opening = [chat.pop(0)] if chat and chat[0][1].author.role == Role.DEVELOPER else []
        prompt = self._opening(_system(variables, date), opening) + self._messages(chat)
        return self._ended(prompt, messages, add_generation_prompt, continue_final_message)

    def following(
        self,
        messages: Sequence[ChatMessage],
        covered: int,
        ids: Sequence[int],
        *,
        begun: bool,
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> Marked:
        """What comes behind `ids`, which are those of the first `covered` messages: the end of an assistant's turn that lacks it,
        unless the next is `begun`, and the other messages. Raises `BadRequest`."""
        end = Marked.of([], OUTSIDE)
        if not begun and isinstance(messages[covered - 1], AssistantMessage) and not {*ids[-1:]} & self._message_ends:
            end = Marked.of(self._special("<|call|>" if self._calls(ids) else "<|end|>"), covered - 1)
        rest = [(index, message) for index, message in _chat(messages, None) if index >= covered]
        written = end + self._messages(_without_old_reasoning(rest))
        return self._ended(written, messages, add_generation_prompt, continue_final_message)

    def _ended(self, written: Marked, messages: Sequence[ChatMessage], next_turn: bool, go_on: bool) -> Marked:
        if not go_on:
            return written + Marked.of(self.beginning if next_turn else [], OUTSIDE)
        last = messages[-1]
        if not isinstance(last, AssistantMessage) or not last.content or last.tool_calls:
            raise BadRequest("continue_final_message: the last message has no text to continue", param="continue_final_message")
        return Marked(written.ids[:-1], written.messages[:-1])

    @cached_property
    def beginning(self) -> list[int]:
        """What begins the assistant's turn."""
        return [*self._special("<|start|>"), *self.encoding.encode("assistant")]

    def header(self, ids: Sequence[int]) -> list[int]:
        """What `ids` begin with, up to a message's text."""
        (text,) = self._special("<|message|>")
        return list(ids[: ids.index(text) + 1] if text in ids else ids)

    def _calls(self, ids: Sequence[int]) -> bool:
        """Whether the last message in `ids` is a call: one that is to someone."""
        (start,) = self._special("<|start|>")
        last = max((place for place, token in enumerate(ids) if token == start), default=0)
        return " to" in self.encoding.decode(self.header(ids[last:]))

    @cached_property
    def _message_ends(self) -> frozenset[int]:
        return frozenset((*self.stop_ids, *self._special("<|end|>")))

    def _special(self, token: str) -> list[int]:
        return list(self.encoding.encode(token, allowed_special={token}))

    def _opening(self, system: Message, developer: Sequence[tuple[int, Message]]) -> Marked:
        # Harmony's system message says whether there are functions, so the library must see both at once.
        ids = self._written([system, *(message for _, message in developer)], self._conversation)
        (start,) = self._special("<|start|>")
        second = ids.index(start, 1) if developer else len(ids)
        return Marked.of(ids[:second], OUTSIDE) + Marked.of(ids[second:], developer[0][0] if developer else OUTSIDE)

    def _messages(self, chat: Sequence[tuple[int, Message]]) -> Marked:
        ids: list[int] = []
        messages: list[int] = []
        for index, message in chat:
            written = self._written([message], lambda chat: self.encoding.render(chat[0]))
            ids += written
            messages += [index] * len(written)
        return Marked(ids, messages)

    def _conversation(self, chat: Sequence[Message]) -> list[int]:
        return list(self.encoding.render_conversation(Conversation.from_messages(chat), config=_KEEP_AS_GIVEN))

    def _written(self, chat: Sequence[Message], write: Callable[[Sequence[Message]], list[int]]) -> list[int]:
        long, chat = _long_texts(chat)
        try:
            ids = list(write(chat))
        except (HarmonyError, ValueError) as error:
            raise BadRequest(f"messages: harmony cannot write this chat: {error}", param="messages") from error
        at = 0
        # A text part is encoded alone, so this is what the library would give.
        encoded = self.plain.encode_batch_fast(list(long.values()), add_special_tokens=False) if long else []
        for stand_in, encoding in zip(long, encoded, strict=True):
            held = self.encoding.encode(stand_in)
            at = next(place for place in range(at, len(ids)) if ids[place : place + len(held)] == held)
            ids[at : at + len(held)] = encoding.ids
            at += len(encoding.ids)
        return ids


def _long_texts(messages: Sequence[Message]) -> tuple[dict[str, str], list[Message]]:
    """The messages with a short stand-in for each long text, and the texts by stand-in, in order."""
    parts = [part for message in messages for part in message.content if isinstance(part, TextContent)]
    if not any(len(part.text) > LONG_TEXT for part in parts):
        return {}, list(messages)
    # Random, so that no client can write it: not in a text, nor in a name that stands in a header.
    mark = "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(_NONCE_LENGTH))
    long: dict[str, str] = {}
    changed = []
    for message in messages:
        content = []
        for part in message.content:
            if isinstance(part, TextContent) and len(part.text) > LONG_TEXT:
                stand_in = f"{mark}{len(long)}{mark}"
                long[stand_in] = part.text
                content.append(TextContent(text=stand_in))
            else:
                content.append(part)
        changed.append(message.model_copy(update={"content": content}))
    return long, changed


def _system(variables: Mapping[str, Any], date: str | None) -> Message:
    content = SystemContent.new().with_conversation_start_date(date or datetime.now(UTC).strftime("%Y-%m-%d"))
    effort = variables.get("reasoning_effort")
    if effort is not None:
        if not isinstance(effort, str) or effort not in EFFORTS:
            raise BadRequest(f"reasoning_effort: harmony knows {', '.join(EFFORTS)}, not {effort!r}", param="reasoning_effort")
        content = content.with_reasoning_effort(EFFORTS[effort])
    identity = variables.get("model_identity")
    if identity is not None:
        if not isinstance(identity, str):
            raise BadRequest("model_identity must be text", param="chat_template_kwargs.model_identity")
        content = content.with_model_identity(identity)
    return Message.from_role_and_content(Role.SYSTEM, content)


def _chat(messages: Sequence[ChatMessage], tools: Sequence[JsonObject] | None) -> Iterator[tuple[int, Message]]:
    """Harmony's messages, each with the index of the one that it is made of."""
    names = _names_of_calls(messages)
    rest = list(enumerate(messages))
    instructions, where = "", OUTSIDE
    if rest and rest[0][1].role in ("system", "developer"):
        where, first = rest.pop(0)
        instructions = "".join(texts(first.content, f"messages.{where}"))
    if instructions or tools:
        yield where, _developer(instructions, tools)
    for index, message in rest:
        for part in _messages(message, names, f"messages.{index}"):
            yield index, part


def _developer(instructions: str | None, tools: Sequence[JsonObject] | None) -> Message:
    content = DeveloperContent.new()
    if instructions:
        content = content.with_instructions(instructions)
    if tools:
        functions = [tool["function"] for tool in tools]
        content = content.with_function_tools(
            [ToolDescription.new(f["name"], f.get("description") or "", parameters=f.get("parameters")) for f in functions]
        )
    return Message.from_role_and_content(Role.DEVELOPER, content)


def _messages(message: ChatMessage, names: Mapping[str, str], where: str) -> Iterator[Message]:
    if isinstance(message, AssistantMessage):
        yield from _assistant(message, where)
        return
    parts = [TextContent(text=text) for text in texts(message.content, where)]
    if message.role in ("system", "developer"):
        yield _developer("".join(part.text for part in parts), None)
    elif message.role == "user":
        yield Message.from_role_and_contents(Role.USER, parts)
    else:
        author = Author.new(Role.TOOL, f"functions.{_tool_name(message, names, where)}")
        yield Message(author=author, content=parts).with_channel("commentary").with_recipient("assistant")


def _assistant(message: AssistantMessage, where: str) -> Iterator[Message]:
    """What a turn is made of, in the order in which the model writes it: reasoning, what it says, calls."""
    reasoning = message.reasoning if message.reasoning is not None else message.reasoning_content
    if reasoning:
        yield _said(reasoning).with_channel("analysis")
    content = message.content if message.content is not None else message.refusal
    parts = [TextContent(text=text) for text in texts(content, where)]
    if any(part.text for part in parts):
        yield Message.from_role_and_contents(Role.ASSISTANT, parts).with_channel("commentary" if message.tool_calls else "final")
    for index, call in enumerate(message.tool_calls or ()):
        arguments = arguments_text(call.function.arguments, f"{where}.tool_calls.{index}.function.arguments")
        yield (
            _said(arguments).with_channel("commentary").with_recipient(f"functions.{call.function.name}").with_content_type("json")
        )


def _said(text: str) -> Message:
    return Message.from_role_and_content(Role.ASSISTANT, text)


def _names_of_calls(messages: Sequence[ChatMessage]) -> dict[str, str]:
    calls = (call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls or ())
    return {call.id: call.function.name for call in calls if call.id is not None}


def _tool_name(message: ChatMessage, names: Mapping[str, str], where: str) -> str:
    """Harmony names the function that a result is of, where the API gives the call's id."""
    known = names.get(message.tool_call_id or "") if isinstance(message, ToolMessage) else None
    name = known or message.name
    if name is None:
        raise BadRequest(
            f"{where}.tool_call_id: no call before has this id, and the message has no name: harmony needs the function's",
            param=f"{where}.tool_call_id",
        )
    return name


def _without_old_reasoning(chat: Iterable[tuple[int, Message]]) -> list[tuple[int, Message]]:
    messages = list(chat)
    finals = [
        place for place, (_, message) in enumerate(messages) if message.author.role == Role.ASSISTANT and message.channel == "final"
    ]
    answered = finals[-1] if finals else 0
    return [each for place, each in enumerate(messages) if place >= answered or each[1].channel != "analysis"]
