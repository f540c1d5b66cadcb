"""What a chat template expects of its input, learned by trying it: families differ, and no template says so.

- Does it take a message's content as one text, or walk its parts, or both?
- Beside tool calls, does it test for `content` being none, or take an empty text?
- Does it serialise a call's arguments (objects), or concatenate them (text)?
- Does it know the role `developer`?
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model_profile.template import InvalidTemplate, TemplateExceeded, TemplateFailed, TemplateInput

Write = Callable[[TemplateInput], str]

_FIRST, _SECOND = "Zq0first", "Zq0second"
_NAME, _KEY = "zq0_name", "zq0_key"
_ARGUMENTS = {_KEY: "v"}
_ARGUMENT_TEXT = f'{{"{_KEY}": "v"}}'
_DEVELOPER = re.compile(r"""["']developer["']""")


@dataclass(frozen=True, slots=True)
class TemplateHabits:
    """`argument_text`: arguments given as text come out as that text, so even broken JSON can be shown as it was."""

    content_text: bool
    content_parts: bool
    null_content: bool
    argument_objects: bool
    argument_text: bool
    developer_role: bool


def learn(source: str, write: Write) -> TemplateHabits:
    """Tries the template `source`, which `write` runs, on a few small chats. Raises `TemplateExceeded` and `InvalidTemplate`."""
    objects = {content: _call(write, content, _ARGUMENTS) for content in (None, "")}
    texts = {content: _call(write, content, _ARGUMENT_TEXT) for content in (None, "")}
    null = _shows_call(objects[None] or "") or _shows_call(texts[None] or "")
    if null:
        # A template that prints null content would write the word "None".
        empty = objects[""] or texts[""] or ""
        null = (objects[None] or texts[None] or "").count("None") <= empty.count("None")
    content = None if null else ""
    shows_objects, shows_text = _shows_call(objects[content] or ""), _ARGUMENT_TEXT in (texts[content] or "")
    return TemplateHabits(
        content_text=_FIRST in (_render(write, [{"role": "user", "content": _FIRST}]) or ""),
        content_parts=_walks_parts(write),
        null_content=null,
        argument_objects=shows_objects or not shows_text,
        argument_text=shows_text,
        developer_role=_DEVELOPER.search(source) is not None,
    )


def _render(write: Write, messages: list[dict[str, Any]]) -> str | None:
    tokens = {"bos_token": "", "eos_token": "", "pad_token": "", "unk_token": ""}
    try:
        return write(TemplateInput(messages, special_tokens=tokens))
    except (InvalidTemplate, TemplateExceeded):
        raise
    except TemplateFailed:
        return None


def _walks_parts(write: Write) -> bool:
    parts = [{"type": "text", "text": _FIRST}, {"type": "text", "text": _SECOND}]
    text = _render(write, [{"role": "user", "content": parts}]) or ""
    printed_as_value = re.search(r"""['"]type['"]\s*:""", text)
    return _FIRST in text and _SECOND in text and not printed_as_value


def _call(write: Write, content: str | None, arguments: Mapping[str, str] | str) -> str | None:
    call = {"id": "zq0call00", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
    return _render(write, [{"role": "user", "content": _FIRST}, {"role": "assistant", "content": content, "tool_calls": [call]}])


def _shows_call(text: str) -> bool:
    printed_as_value = f"{{'{_KEY}'" in text
    return _NAME in text and _KEY in text and not printed_as_value
