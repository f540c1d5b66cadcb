"""What a template can make large things with, checked: before, where one step makes much of little, else behind.

Checked are the text, bytes and lists that `+`, `*`, `~`, `%`, methods, filters and `lipsum` make, and the numbers of `*`, `**` and
`round`. Not checked are lists that hold the same thing many times over, which grow when they are printed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from types import BuiltinMethodType
from typing import Any

from jinja2.sandbox import SandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import generate_lorem_ipsum
from markupsafe import Markup

from model_profile.template import TemplateExceeded
from model_profile.template_budget import checked, fits, room, tick

_SIZED = (str, bytes, list, tuple)
_NUMBER_BITS = 2**16
_MOST_DIGITS = 1000
_MOST_ROWS = 100_000
"""As many as Jinja's sandbox lets a range have."""
_WORD = 14
"""No word of `lipsum` is longer, with what stands behind it."""
_WIDTH = re.compile(r"\d{5,}")
_PARTS_A_TICK = 256

Check = Callable[..., None]


def times(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _number(left.bit_length() + right.bit_length())
    elif isinstance(left, _SIZED) and isinstance(right, int):
        fits(len(left) * right)
    elif isinstance(right, _SIZED) and isinstance(left, int):
        fits(len(right) * left)
    return left * right


def power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and abs(left) > 1:
        _number(left.bit_length() * right)
    return left**right


def check_percent(layout: str | bytes, values: Any) -> None:
    """Of `layout % values`, the widths."""
    text = layout if isinstance(layout, str) else layout.decode("latin-1")
    _check_widths(text)
    if "*" in text:
        for value in values if isinstance(values, tuple) else (values,):
            if isinstance(value, int):
                fits(value)


def _check_widths(layout: str) -> None:
    for width in _WIDTH.findall(layout):
        # More digits than this are no number that Python reads; and it fits nowhere.
        fits(int(width) if len(width) < _MOST_DIGITS else room() + 1)


def _number(bits: int) -> None:
    if bits > _NUMBER_BITS:
        raise TemplateExceeded(f"the chat template made a number of more than {_NUMBER_BITS} bits")


class _BoundedFormatter(SandboxedFormatter):
    """Of `'{:9}'.format(x)`, the widths."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        _check_widths(format_spec)
        return super().format_field(value, format_spec)


class _BoundedEscapeFormatter(_BoundedFormatter, SandboxedEscapeFormatter):
    pass


def formatter(environment: SandboxedEnvironment, layout: str) -> SandboxedFormatter:
    """For `layout.format(...)`."""
    if isinstance(layout, Markup):
        return _BoundedEscapeFormatter(environment, escape=layout.escape)
    return _BoundedFormatter(environment)


def check_method(owner: Any, name: str, *args: Any, **kwargs: Any) -> None:
    """Before a method of text, bytes or a number is called."""
    check = _METHODS.get(name)
    if check is not None:
        check(owner, *args, **kwargs)


def _by_width(_: Any, *args: Any, **kwargs: Any) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int):
            fits(value)


def _expandtabs(text: Any, tabsize: Any = 8, *_: Any) -> None:
    if isinstance(tabsize, int):
        fits(text.count("\t" if isinstance(text, str) else b"\t") * tabsize)


def _replace(text: Any, old: Any = None, new: Any = None, count: Any = -1, *_: Any) -> None:
    kind: Any = str if isinstance(text, str) else bytes
    if isinstance(old, kind) and isinstance(new, kind):
        found = kind.count(text, old)
        fits(len(text) + (found if not isinstance(count, int) or count < 0 else min(found, count)) * len(new))


def _join(separator: Any, parts: Any = (), *_: Any) -> None:
    if isinstance(parts, list | tuple | str):
        fits(len(separator) * len(parts) + sum(len(part) for part in parts if isinstance(part, str | bytes)))


def _translate(text: Any, table: Any = None, *_: Any) -> None:
    if isinstance(table, Mapping):
        fits(len(text) * max((len(new) for new in table.values() if isinstance(new, str)), default=1))


_METHODS: dict[str, Check] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "to_bytes"), _by_width),
    "expandtabs": _expandtabs,
    "replace": _replace,
    "join": _join,
    "translate": _translate,
}


def is_text_method(callable: Any) -> bool:
    """Of plain text: it needs nothing of what Jinja does for other callables."""
    return type(callable) is BuiltinMethodType and type(callable.__self__) is str


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML and sorts keys, which models were not trained on.
    if indent is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    # Indented, a few brackets within brackets are megabytes of blanks.
    fits(indent if isinstance(indent, int) else len(indent))
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return "".join(counted(encoder.iterencode(value)))


def counted(parts: Iterable[str]) -> Iterator[str]:
    """The parts, as long as they fit together."""
    size, most = 0, room()
    for number, part in enumerate(parts):
        size += len(part)
        if size > most or number > most:
            fits(most + 1)
        if not number % _PARTS_A_TICK:
            tick()
        yield part


def bounded(filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Jinja's filters, with those checked that can make large things."""

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        check = _CHECKS.get(name)
        function = _growing(function) if name in _GROWING else function
        return function if check is None else _checking(function, check)

    return {name: guarded(name, function) for name, function in filters.items()}


def lorem(n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
    fits(n * _WORD * (min if min > max else max))
    return generate_lorem_ipsum(n, html, min, max)


def _growing(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def growing(*args: Any, **kwargs: Any) -> Any:
        return checked(function(*args, **kwargs))

    return growing


def _checking(function: Callable[..., Any], check: Check) -> Callable[..., Any]:
    @wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return checking


# Their parameters are the filters' own; the first is, where the filter wants one, Jinja's context.


def _check_center(value: Any, width: Any = 80) -> None:
    fits(width if isinstance(width, int) else 0)


def _check_indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    if isinstance(text, str) and isinstance(width, int | str):
        fits(len(text) + (len(text.splitlines()) + 1) * (width if isinstance(width, int) else len(width)))


def _check_wordwrap(_: Any, text: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, *__: Any) -> None:
    if isinstance(text, str) and isinstance(wrapstring, str):
        fits(len(text) * (1 + len(wrapstring)))


def _check_replace(_: Any, text: Any, old: Any, new: Any, count: Any = None) -> None:
    _replace(str(text), str(old), str(new), count)


def _check_join(_: Any, parts: Any, d: Any = "", attribute: Any = None) -> None:
    _join(str(d), parts)


def _check_format(layout: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(layout, str):
        check_percent(layout, args or tuple(kwargs.values()))


def _check_slice(_: Any, value: Any, slices: Any, fill_with: Any = None) -> None:
    _check_batch(value, slices)


def _check_batch(value: Any, linecount: Any, fill_with: Any = None) -> None:
    if isinstance(linecount, int) and linecount > _MOST_ROWS:
        raise TemplateExceeded(f"the chat template asked for more than {_MOST_ROWS} rows")


def _check_round(value: Any, precision: Any = 0, method: Any = "common") -> None:
    if isinstance(precision, int):
        _number(4 * abs(precision))


_ESCAPES = ("e", "escape", "forceescape", "pprint", "string", "tojson", "urlencode", "urlize", "xmlattr")
_GROWING = frozenset({*_ESCAPES, "format", "indent", "join", "replace", "wordwrap"})
_CHECKS: dict[str, Check] = {
    "batch": _check_batch,
    "center": _check_center,
    "format": _check_format,
    "indent": _check_indent,
    "join": _check_join,
    "replace": _check_replace,
    "round": _check_round,
    "slice": _check_slice,
    "wordwrap": _check_wordwrap,
}
