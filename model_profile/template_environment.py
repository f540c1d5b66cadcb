"""The Jinja that chat templates are written for: transformers' filters and functions, in a sandbox."""

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


class TemplateFailed(Exception):
    """The template could not render these messages: it met a value of a type that it did not expect, and the like."""


class TemplateRefused(TemplateFailed):
    """The template itself refuses these messages (`raise_exception`), or they cannot be continued as asked."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = to_json
        self.globals |= {"raise_exception": _refuse, "strftime_now": _now, "namespace": _namespace}

    def getattr(self, obj: Any, attribute: str) -> Any:
        # What Jinja comes to for a mapping's item, without the error on the way there: most of what templates do.
        if isinstance(obj, dict) and attribute in obj and attribute not in _METHODS:
            return obj[attribute]
        return super().getattr(obj, attribute)


_METHODS = frozenset(dir(dict))


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


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML and sorts keys, which models were not trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
