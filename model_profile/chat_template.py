"""Chat templates: Jinja programs that come with a model and turn messages into one text, rendered exactly as transformers does.

A template is code by strangers, and sees data by strangers: it runs in a sandbox within limits, and whatever it raises is a typed
error. What the limits hold for `template_environment` tells; a template that nobody vouches for runs in a process of its own
(`guest_template`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jinja2
from jinja2 import nodes

from model_profile.errors import BrokenModel
from model_profile.provenance import OUTSIDE, Traced, source, traced, write_for
from model_profile.template import InvalidTemplate, Message, TemplateFailed, TemplateInput, TemplateRefused, TemplateStarved
from model_profile.template_budget import STANDARD, TemplateLimits, within
from model_profile.template_environment import TemplateEnvironment
from model_profile.template_habits import TemplateHabits, learn
from model_profile.tracing_environment import TracingEnvironment, traced_messages

# What running a template may raise: its code is arbitrary, but none of these is a fault of the service.
_FAILURES = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError)


_REASONING = ("reasoning_content", "thinking", "reasoning")
_REASONING_NAMES = frozenset(_REASONING)
# Put behind the text to continue, and looked for in the rendering. The blank at its end shows whether the template trims.
_MARK = "\U000f0002CONTINUE\U000f0002 "


# Filters that make `<` of what is none (`&lt;`, a link); also named as a text, by `map`.
_MAKES_MARKUP = frozenset({"striptags", "urlize"})


_CLASSES = {"Traced": "str", "TracedMessage": "dict", "_Namespace": "namespace", "LoopContext": "loop"}
_CLASS = re.compile(r"\b(?:[a-z_0-9]+\.)*(?P<name>Traced|TracedMessage|_Namespace|LoopContext|(?<=\.)[A-Z]\w+)\b")


@dataclass(frozen=True)
class ChatTemplate:
    """`source` renders chats, `tool_source` those with tools, where the model has a template of its own for them.
    `limits` are those of one run."""

    source: str
    tool_source: str | None = None
    limits: TemplateLimits = STANDARD

    @property
    def text(self) -> str:
        """Both sources: what can be read off them about the model."""
        return self.source + (self.tool_source or "")

    @property
    def literals(self) -> frozenset[str] | None:
        """The texts that the programs can write beside what they are given; None if they may make others."""
        found = [_literals(source) for source in (self.source, self.tool_source) if source]
        return None if None in found else frozenset().union(*filter(None, found))

    @classmethod
    def of(cls, value: Any, where: str, limits: TemplateLimits = STANDARD) -> "ChatTemplate":
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
        for program in filter(None, (default, tool)):
            try:
                compiled(program)
            except InvalidTemplate as error:
                raise BrokenModel(f"{where}: {error}") from error
        return cls(default, tool, limits)

    def habits(self, *, with_tools: bool = False) -> TemplateHabits:
        """What the template expects of its input: tried out on a few small chats, and remembered. Raises `TemplateExceeded`."""
        return _habits(self._chosen(with_tools), self.limits)

    def render(self, messages: Sequence[Message], **given: Any) -> str:
        """The prompt's text; arguments as `TemplateInput` has them. Raises `TemplateRefused` and `TemplateFailed`."""
        return self.write(TemplateInput(messages, **given))

    def write(self, given: "TemplateInput") -> str:
        """The prompt's text. Raises `TemplateRefused` and `TemplateFailed`."""
        return self._run(compiled, given, lambda chat: chat, lambda value: value)

    def trace(self, given: "TemplateInput") -> Traced:
        """The same text, each character with its source. Takes several times as long. Raises as `write` does."""
        outside = source(OUTSIDE, supplied=True)
        return cast(Traced, self._run(_compiled_to_trace, given, traced_messages, lambda value: traced(value, outside)))

    def _run(
        self,
        program: Callable[[str], jinja2.Template],
        given: "TemplateInput",
        chat_as_seen: Callable[[list[dict[str, Any]]], Sequence[Message]],
        as_seen: Callable[[Any], Any],
    ) -> str:
        chat = [_with_reasoning(message) for message in given.messages]
        final = _mark_final(chat) if given.continue_final_message else ""
        write_for(OUTSIDE)
        try:
            variables = {
                **given.special_tokens,
                **{name: as_seen(value) for name, value in given.variables.items()},
                "messages": chat_as_seen(chat),
                "tools": as_seen(given.tools),
                "documents": as_seen(given.documents),
                "add_generation_prompt": given.add_generation_prompt,
            }
            with within(self.limits):
                text = program(self._chosen(given.tools is not None)).render(variables)
        except TemplateFailed:
            raise
        except MemoryError as error:
            raise TemplateStarved("the chat template needed more memory than there is") from error
        except _FAILURES as error:
            raise TemplateFailed(f"the chat template failed: {_in_its_words(error)}") from error
        return _cut_at_mark(text, final) if given.continue_final_message else text

    def _chosen(self, with_tools: bool) -> str:
        return self.tool_source if with_tools and self.tool_source else self.source


def _in_its_words(error: Exception) -> str:
    """What went wrong, with the names that templates have for things, not those of the classes that stand in for them here."""
    return _CLASS.sub(lambda found: _CLASSES.get(found["name"], found["name"]), str(error))


def _with_reasoning(message: Message) -> dict[str, Any]:
    # Templates disagree on the name of a message's reasoning; each finds it under the one that it reads.
    if _REASONING_NAMES.isdisjoint(message):
        return dict(message)
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


@lru_cache(maxsize=64)
def _habits(source: str, limits: TemplateLimits) -> TemplateHabits:
    with within(limits):
        return learn(source, ChatTemplate(source, limits=limits).write)


@lru_cache(maxsize=64)
def _literals(source: str) -> frozenset[str] | None:
    program = _environment().parse(source)
    constants = {node.value for node in program.find_all(nodes.Const) if isinstance(node.value, str)}
    filters = {node.name for node in program.find_all(nodes.Filter)}
    if _MAKES_MARKUP & (filters | constants):
        return None
    return frozenset(constants | {node.data for node in program.find_all(nodes.TemplateData)})


@lru_cache(maxsize=1)
def _environment() -> TemplateEnvironment:
    return TemplateEnvironment()


@lru_cache(maxsize=1)
def _tracing() -> TracingEnvironment:
    return TracingEnvironment()


@lru_cache(maxsize=64)
def compiled(source: str) -> jinja2.Template:
    """Raises `InvalidTemplate`."""
    return _compiled_by(_environment(), source)


@lru_cache(maxsize=64)
def _compiled_to_trace(source: str) -> jinja2.Template:
    return _compiled_by(_tracing(), source)


def _compiled_by(environment: TemplateEnvironment, source: str) -> jinja2.Template:
    try:
        return environment.from_string(source)
    # Python compiles what Jinja makes of it, and has limits of its own: for loops within loops, and brackets within brackets.
    except (*_FAILURES, SyntaxError) as error:
        raise InvalidTemplate(f"the chat template is not valid Jinja: {error}") from error
