"""What goes into a chat template, and the ways in which it may fail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class TemplateInput:
    """What templates see. `special_tokens` are the model's, by name (`bos_token`, …); `variables` are the client's own, and win."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)


class TemplateFailed(Exception):
    """The template could not render these messages: it met a value of a type that it did not expect, and the like.

    `fault` is the request's field that is to blame.
    """

    fault = "messages"


class TemplateRefused(TemplateFailed):
    """The template itself refuses these messages (`raise_exception`), or they cannot be continued as asked."""


class TemplateExceeded(TemplateFailed):
    """The template took longer, or made more, than it may."""


class TemplateStarved(TemplateExceeded):
    """There was no memory left for what the template made."""


class InvalidTemplate(TemplateFailed):
    """It is no program."""

    fault = "chat_template"


class HostFailed(Exception):
    """The process that was to run a template could not be started, or ended for a reason that is not the template's."""


class HostsBusy(HostFailed):
    """All processes that run templates are at work, and stayed so."""
