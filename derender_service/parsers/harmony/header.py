"""Headers of messages, read by openai-harmony: `assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from openai_harmony import HarmonyEncoding, HarmonyError, StreamableParser
from tokenizers import Tokenizer

MAX_HEADER = 512
"""Ids. A header that has no end by then is none."""

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_BUILT_IN = ("python", "browser", "container")


@dataclass(frozen=True)
class Header:
    """`function` is the name of the function that the body calls; `tool` says that it is for a tool of the model's own instead."""

    channel: str | None
    function: str | None = None
    tool: bool = False


ReadHeader = Callable[[tuple[int, ...]], Header]


def header_reader(tokenizer: Tokenizer, encoding: HarmonyEncoding) -> ReadHeader:
    """Reads the ids between `<|start|>` and `<|message|>`. What they mean depends on them alone, so readings are kept."""
    start, message = (tokenizer.token_to_id(token) for token in ("<|start|>", "<|message|>"))

    @lru_cache(maxsize=4096)
    def read(ids: tuple[int, ...]) -> Header:
        text = tokenizer.decode(ids, skip_special_tokens=False)
        parser = StreamableParser(encoding, None)
        try:
            for token_id in (start, *ids, message):
                parser.process(token_id)
        except HarmonyError:
            # Not as the format has it: what can be told from it is taken, so that no text is lost.
            channel = _CHANNEL.search(text)
            return _header(channel[1] if channel else None, _addressee(text))
        recipient = parser.current_recipient
        return _header(parser.current_channel, recipient if recipient and f"to={recipient}" in text else None)

    return read


def _addressee(text: str) -> str | None:
    match = re.search(r"\bto=([^\s<]+)", text)
    return match[1] if match else None


def _header(channel: str | None, recipient: str | None) -> Header:
    """A recipient makes a call, whatever the channel; the model's built-in tools are no functions of the client."""
    if not recipient or recipient == "assistant":
        return Header(channel)
    if recipient.split(".")[0] in _BUILT_IN:
        return Header(channel, tool=True)
    name = recipient.removeprefix("functions.")
    return Header(channel, name) if name and name != "functions" else Header(channel)
