"""Text that knows where each of its characters came from: the template, or a message, or elsewhere in the request.

A chat template glues its own markers and the client's text into one string, and only the template's markers are control tokens.
A template is a program that may cut, trim and join what it is given, so where a character came from cannot be read off its output:
the characters must say it themselves. `Traced` is text that carries a source for each character through what templates do to text;
`tracing_environment` runs templates on such text.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Any, SupportsIndex

from jinja2 import Undefined

OUTSIDE = -1
"""In place of a message's index: what belongs to no message."""

_STRIDE = 4096
_PERCENT = re.compile(r"%(?:\((?P<name>[^)]*)\))?[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa%]")


def source(message: int, *, supplied: bool) -> str:
    """A source, as one character: the message's index or `OUTSIDE`, and whether the client supplied the text or the template."""
    return chr(2 * (message + 1) + supplied)


def is_supplied(source: str) -> bool:
    return bool(ord(source) & 1)


def message_of(source: str) -> int:
    """The message's index, or `OUTSIDE`."""
    return ord(source) // 2 - 1


_NOBODYS = source(OUTSIDE, supplied=False)


class _Template(threading.local):
    """What the template that runs in this thread is writing for."""

    source = _NOBODYS


_template = _Template()


def write_for(message: int) -> None:
    """From now on, text of the template's own in this thread is that of the message with this index, or `OUTSIDE`."""
    _template.source = source(message, supplied=False)


def written_for() -> int:
    """The message that the template is writing for, or `OUTSIDE`."""
    return message_of(_template.source)


class Traced(str):
    """Text with `sources`, one for each of its characters. Every method that makes text of it makes traced text.

    What a method cannot follow character by character (padding, upper case that changes the length) counts as the client's as a
    whole, if any of it is.
    """

    __slots__ = ("sources",)
    sources: str

    def __new__(cls, text: str, sources: str) -> "Traced":
        made = super().__new__(cls, text)
        made.sources = sources
        return made

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __str__(self) -> "Traced":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Traced, (untraced(self), self.sources)

    def __getitem__(self, key: SupportsIndex | slice) -> "Traced":
        return Traced(str.__getitem__(self, key), self.sources[key])

    def __iter__(self) -> Iterator["Traced"]:
        return map(Traced, str.__iter__(self), self.sources)

    def __add__(self, other: str) -> "Traced":
        return Traced(str.__add__(self, other), self.sources + sources_of(other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> "Traced":
        return Traced(str.__add__(other, self), sources_of(other) + self.sources) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> "Traced":
        return Traced(str.__mul__(self, count), self.sources * count)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> "Traced":
        return percent(self, values)

    def __rmod__(self, other: str) -> "Traced":
        return percent(other, self) if isinstance(other, str) else NotImplemented

    def __format__(self, layout: str) -> "Traced":
        return self if not layout else whole(str.__format__(self, layout), self)

    def strip(self, chars: str | None = None) -> "Traced":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> "Traced":
        return self[len(self) - len(str.lstrip(self, chars)) :]

    def rstrip(self, chars: str | None = None) -> "Traced":
        return self[: len(str.rstrip(self, chars))]

    def removeprefix(self, prefix: str) -> "Traced":
        return self[len(self) - len(str.removeprefix(self, prefix)) :]

    def removesuffix(self, suffix: str) -> "Traced":
        return self[: len(str.removesuffix(self, suffix))]

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list["Traced"]:  # type: ignore[override]
        return self._found(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list["Traced"]:  # type: ignore[override]
        return self._found(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list["Traced"]:  # type: ignore[override]
        lines, at = [], 0
        for line, kept in zip(str.splitlines(self), str.splitlines(self, True), strict=True):
            lines.append(self[at : at + len(kept if keepends else line)])
            at += len(kept)
        return lines

    def partition(self, sep: str) -> tuple["Traced", "Traced", "Traced"]:
        return self._tiled(str.partition(self, sep))

    def rpartition(self, sep: str) -> tuple["Traced", "Traced", "Traced"]:
        return self._tiled(str.rpartition(self, sep))

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> "Traced":
        if not old:
            return whole(str.replace(self, old, new, count), self, new)
        return joined(new, self.split(old, count))

    def join(self, parts: Iterable[str]) -> "Traced":
        return joined(self, parts)

    def lower(self) -> "Traced":
        return self._cased(str.lower(self))

    def upper(self) -> "Traced":
        return self._cased(str.upper(self))

    def title(self) -> "Traced":
        return self._cased(str.title(self))

    def capitalize(self) -> "Traced":
        return self._cased(str.capitalize(self))

    def swapcase(self) -> "Traced":
        return self._cased(str.swapcase(self))

    def casefold(self) -> "Traced":
        return self._cased(str.casefold(self))

    def center(self, width: SupportsIndex, fillchar: str = " ") -> "Traced":
        return whole(str.center(self, width, fillchar), self)

    def ljust(self, width: SupportsIndex, fillchar: str = " ") -> "Traced":
        return whole(str.ljust(self, width, fillchar), self)

    def rjust(self, width: SupportsIndex, fillchar: str = " ") -> "Traced":
        return whole(str.rjust(self, width, fillchar), self)

    def zfill(self, width: SupportsIndex) -> "Traced":
        return whole(str.zfill(self, width), self)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> "Traced":
        return whole(str.expandtabs(self, tabsize), self)

    def translate(self, table: Any) -> "Traced":
        return whole(str.translate(self, table), self, table)

    def format(self, *args: object, **kwargs: object) -> "Traced":
        return formatted(Formatter(), self, args, kwargs)

    def format_map(self, mapping: Any) -> "Traced":
        return formatted(Formatter(), self, (), mapping)

    def _cased(self, text: str) -> "Traced":
        # Changed case only ever lengthens text: of the same length, it is the same characters.
        return Traced(text, self.sources) if len(text) == len(self) else whole(text, self)

    def _found(self, parts: list[str], sep: str | None) -> list["Traced"]:
        """The parts, which lie in this text in order: with `sep` between any two, or with white space."""
        found, at = [], 0
        for part in parts:
            start = at if sep is not None else str.find(self, part, at)
            found.append(self[start : start + len(part)])
            at = start + len(part) + len(sep or "")
        return found

    def _tiled(self, parts: tuple[str, str, str]) -> tuple["Traced", "Traced", "Traced"]:
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        return self[:first], self[first:second], self[second:]


def sources_of(text: str) -> str:
    """A text's sources; text that carries none is the template's own."""
    return text.sources if isinstance(text, Traced) else _template.source * len(text)


def joined(separator: str, parts: Iterable[str]) -> Traced:
    """`separator.join(parts)`. The template runs on while parts are taken, so sources are asked for one by one."""
    texts, sources = [], []
    for part in parts:
        texts.append(part)
        sources.append(sources_of(part))
    return Traced(str.join(separator, texts), sources_of(separator).join(sources))


def runs(text: Traced) -> Iterator[tuple[int, str]]:
    """Where each run of characters of one source begins, and its sources."""
    sources, at = text.sources, 0
    while at < len(sources):
        own, end = sources[at], at
        while sources.startswith(own * _STRIDE, end):
            end += _STRIDE
        rest = sources[end : end + _STRIDE]
        end += len(rest) - len(rest.lstrip(own))
        yield at, sources[at:end]
        at = end


def untraced(text: str) -> str:
    return str.__getitem__(text, slice(None)) if isinstance(text, Traced) else text


def made_here(text: str) -> str:
    """`text` as it is written now: what of it the template made for no message is that of the one that it is writing for."""
    if not isinstance(text, Traced) or _NOBODYS not in text.sources:
        return text
    return Traced(untraced(text), text.sources.replace(_NOBODYS, _template.source))


def whole(text: str, *origins: Any) -> Traced:
    """`text`, made of `origins` in a way that was not followed: all of it the client's if any of them is."""
    found = [each for origin in origins for each in traced_in(origin)]
    supplied = (own for each in found for own in set(each.sources) if is_supplied(own))
    return Traced(text, max(supplied, default=_template.source) * len(text))


def printed(value: Any) -> str:
    """`str(value)`. Of what is no text, and no number or the like, it is the client's as a whole: lists and mappings hold texts,
    and whose a printed thing is, nobody can say."""
    if isinstance(value, str | int | float | Undefined) or value is None:
        return str(value)
    supplied = (own for each in traced_in(value) for own in set(each.sources) if is_supplied(own))
    text = str(value)
    return Traced(text, max(supplied, default=source(OUTSIDE, supplied=True)) * len(text))


def traced_in(value: Any) -> Iterator[Traced]:
    """Traced texts within lists, dicts and the like, however deep, in any order."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, Traced):
            yield each
        elif isinstance(each, dict):
            pending += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            pending += each


def percent(layout: str, values: Any) -> Traced:
    """`layout % values`, the layout's own text told from what is put in."""
    parts: list[str] = []
    arguments = iter(values if isinstance(values, tuple) else (values,))
    plain, at = untraced(layout), 0
    complete = str.__mod__(plain, values)
    for match in _PERCENT.finditer(plain):
        parts.append(layout[at : match.start()])
        at = match.end()
        if match[0].endswith("%"):
            parts.append(layout[match.end() - 1 : match.end()])
            continue
        value = values[match["name"]] if match["name"] is not None else next(arguments, "")
        piece = str.__mod__(match[0], {match["name"]: value} if match["name"] is not None else (value,))
        parts.append(value if piece == value else whole(piece, value))
    parts.append(layout[at:])
    made = joined("", parts)
    # Widths that are themselves arguments are not followed.
    return made if made == complete else whole(complete, layout, values)


def formatted(formatter: Formatter, layout: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """`layout.format(*args, **kwargs)` by `formatter`, the layout's own text told from what is put in but for nested fields."""
    parts: list[str] = []
    own, number = whole(" ", layout).sources, 0
    for literal, name, spec, conversion in formatter.parse(layout):
        parts.append(Traced(literal, own * len(literal)))
        if name is None:
            continue
        if name == "" or name[0] in ".[":
            name, number = f"{number}{name}", number + 1
        value, _ = formatter.get_field(name, args, kwargs)
        layout_of_field = formatter.vformat(spec or "", args, kwargs)
        piece = formatter.format_field(formatter.convert_field(value, conversion), layout_of_field)
        parts.append(piece if isinstance(piece, Traced) else whole(piece, value))
    made, complete = joined("", parts), formatter.vformat(layout, args, kwargs)
    return made if made == complete else whole(complete, layout, args, kwargs)


def traced(value: Any, source: str) -> Any:
    """`value` with all its texts traced to `source`, keys of mappings included, however deep."""
    made: list[Any] = [value]
    places: list[tuple[Any, Any]] = [(made, 0)]
    inner: Any
    while places:
        holder, place = places.pop()
        item = holder[place]
        if isinstance(item, str):
            holder[place] = Traced(item, source * len(item))
        elif isinstance(item, Mapping):
            holder[place] = inner = {traced(key, source): each for key, each in item.items()}
            places += [(inner, key) for key in inner]
        elif isinstance(item, list | tuple):
            holder[place] = inner = list(item)
            places += [(inner, index) for index in range(len(inner))]
    return made[0]
