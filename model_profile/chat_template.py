"""Chat templates: Jinja programs that come with a model and turn messages into one text, rendered exactly as transformers does.

A template is code by strangers, and sees data by strangers: it runs in a sandbox, and whatever it raises is a typed error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from model_profile.errors import BrokenModel

Message = Mapping[str, Any]


class TemplateFailed(Exception):
    """The template could not render these messages: it met a value of a type that it did not expect, and the like."""


class TemplateRefused(TemplateFailed):
    """The template itself refuses these messages (`raise_exception`), or they cannot be continued as asked."""


# What running a template may raise: its code is arbitrary, but none of these is a fault of the service.
_FAILURES = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError)

_REASONING = ("reasoning_content", "thinking", "reasoning")
# Put behind the text to continue, and looked for in the rendering. The blank at its end shows whether the template trims.
_MARK = "\U000f0002CONTINUE\U000f0002 "


@dataclass(frozen=True)
class ChatTemplate:
    """`source` renders chats, `tool_source` those with tools, where the model has a template of its own for them."""

    source: str
    tool_source: str | None = None

    @property
    def text(self) -> str:
        """Both sources: what can be read off them about the model."""
        return self.source + (self.tool_source or "")

    @classmethod
    def of(cls, value: Any, where: str) -> "ChatTemplate":
        """From a `chat_template` entry: a text, or a list of `{name, template}`. Raises `BrokenModel`, which names `where`."""
        if isinstance(value, list):
            try:
                named = {item["name"]: item["template"] for item in value}
            except (TypeError, KeyError) as error:
                raise BrokenModel(f"{where}: a list of chat templates needs a name and a template each") from error
            default = named.get("default", named.get("tool_use"))
            tool = named.get("tool_use")
        else:
            default, tool = value, None
        if not isinstance(default, str) or not isinstance(tool, str | None):
            raise BrokenModel(f"{where}: a chat template must be text, or a list of named ones with a default")
        for source in filter(None, (default, tool)):
            try:
                _compiled(source)
            except jinja2.TemplateError as error:
                raise BrokenModel(f"{where}: the chat template is not valid Jinja: {error}") from error
        return cls(default, tool)

    def chosen(self, *, with_tools: bool) -> str:
        return self.tool_source if with_tools and self.tool_source else self.source

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. `variables`: special tokens and the client's own. Raises `TemplateRefused` and `TemplateFailed`."""
        source = self.chosen(with_tools=tools is not None)
        chat = [_with_reasoning(message) for message in messages]
        final = ""
        if continue_final_message:
            final = _mark_final(chat)
        try:
            text = _compiled(source).render(
                **{
                    **(variables or {}),
                    "messages": chat,
                    "tools": tools,
                    "documents": documents,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except TemplateRefused:
            raise
        except _FAILURES as error:
            raise TemplateFailed(f"the chat template failed: {error}") from error
        return _cut_at_mark(text, final) if continue_final_message else text


def _with_reasoning(message: Message) -> dict[str, Any]:
    # Templates disagree on the name of a message's reasoning; each finds it under the one that it reads.
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _mark_final(chat: list[dict[str, Any]]) -> str:
    """Marks the end of the last message's text, in place, and returns that text."""
    last = chat[-1] if chat else {}
    content = last.get("content")
    if isinstance(content, str):
        last["content"] = content + _MARK
        return content
    if isinstance(content, list):
        parts = [dict(part) for part in content]
        for part in reversed(parts):
            if isinstance(part.get("text"), str):
                text: str = part["text"]
                part["text"] = text + _MARK
                last["content"] = parts
                return text
    raise TemplateRefused("continue_final_message: the last message has no text to continue")


def _cut_at_mark(text: str, final: str) -> str:
    mark = _MARK.strip()
    if mark not in text or final.strip() not in text:
        raise TemplateRefused("continue_final_message: the chat template leaves out the last message, or changes its text")
    at = text.rindex(mark)
    # A template that trims a message's text has dropped the mark's blank, and would have dropped the white space before the mark.
    trimmed = text[at : at + len(_MARK)] != _MARK
    return text[:at].rstrip() if trimmed else text[:at]


class _Generation(Extension):
    """`{% generation %}` marks the assistant's own text for training; in a prompt its content stands as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Jinja's, but for names with a leading underscore: stored ones would stand in for Python's own attributes of the object."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a chat template may not store {name!r} in a namespace")
        super().__setitem__(name, value)


def _namespace(*args: Any, **values: Any) -> Namespace:
    made = _Namespace()
    for name, value in dict(*args, **values).items():
        made[name] = value
    return made


def _refuse(message: object) -> NoReturn:
    raise TemplateRefused(f"the chat template refuses these messages: {message}")


def _now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML and sorts keys, which models were not trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now, "namespace": _namespace}
    return environment


@lru_cache(maxsize=64)
def _compiled(source: str) -> jinja2.Template:
    return _environment().from_string(source)
