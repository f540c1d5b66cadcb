"""Chat templates run on `Traced` text: every way in which Jinja makes text of text keeps the sources.

Text methods, `+` and slices are `Traced`'s own. The rest is here: `~` and output, `%` and `format`, filters, methods of the
template's own text (`', '.join(...)`), and which message the template is writing for, told by the message that it last looked at.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, SupportsIndex, overload

from jinja2 import nodes
from jinja2.compiler import Frame
from jinja2.filters import do_map
from jinja2.runtime import Context, Macro

from model_profile import template_growth as growth
from model_profile.provenance import (
    OUTSIDE,
    Traced,
    formatted,
    joined,
    percent,
    printed,
    source,
    traced,
    traced_in,
    whole,
    write_for,
)
from model_profile.template_budget import checked
from model_profile.template_environment import GuardedCode, TemplateEnvironment


class TracedMessage(dict[str, Any]):
    """A message whose texts are traced to it. To look at one of its fields is to begin writing for it."""

    def __init__(self, message: Mapping[str, Any], index: int) -> None:
        # The role is one of a few words that the server knows: markers are made of it.
        own = source(index, supplied=True)
        super().__init__((key, value if key == "role" else traced(value, own)) for key, value in message.items())
        self.index = index

    def __getitem__(self, key: str) -> Any:
        write_for(self.index)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        write_for(self.index)
        return super().get(key, default)


class TracedMessages(list[TracedMessage]):
    """A message that a template picks by its place, it does so to look around: that is not to begin writing for it."""

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> "TracedMessages": ...
    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        return TracedMessages(super().__getitem__(key)) if isinstance(key, slice) else dict(super().__getitem__(key))


def traced_messages(messages: Sequence[Mapping[str, Any]]) -> TracedMessages:
    return TracedMessages(TracedMessage(message, index) for index, message in enumerate(messages))


class _CodeGenerator(GuardedCode):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        # Jinja's own joins by `str.join`, which forgets.
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class TracingEnvironment(TemplateEnvironment):
    code_generator_class = _CodeGenerator

    def __init__(self) -> None:
        super().__init__()
        self.finalize = printed
        self.filters = {name: _keeping(function) for name, function in self.filters.items()}
        self.filters |= growth.bounded({"tojson": _to_json, "join": _join})

    @staticmethod
    def concat(parts: Iterable[Any]) -> Traced:
        return joined("", growth.counted(map(printed, parts)))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str) and any(traced_in([left, right])):
            growth.check_percent(left, right)
            return checked(percent(left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if type(owner) is str and any(traced_in([args, kwargs])):
            __obj = getattr(joined("", [owner]), __obj.__name__)
        result = super().call(__context, __obj, *args, **kwargs)
        if type(result) is not str or isinstance(__obj, Macro):
            return result
        if isinstance(owner, bytes):
            return Traced(result, source(OUTSIDE, supplied=True) * len(result))
        return whole(result, args, kwargs) if any(traced_in([args, kwargs])) else result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None

        def with_sources(*args: Any, **kwargs: Any) -> str:
            given = (args[0], ()) if value.__name__ == "format_map" else (kwargs, args)
            return formatted(growth.formatter(self, value.__self__), value.__self__, given[1], given[0])

        return with_sources


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose text, where it comes back without sources, is as a whole of those that it was made of."""

    @wraps(function)
    def keeping(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, str) or isinstance(result, Traced) or any(result is given for given in (*args, *kwargs.values())):
            return result
        return whole(result, args, kwargs) if any(traced_in([args, kwargs])) else result

    return keeping


def _to_json(value: Any, *args: Any, **kwargs: Any) -> str:
    return whole(growth.to_json(value, *args, **kwargs), value)


@wraps(do_map)
def _join(context: Context, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    parts = value if attribute is None else do_map(context, value, attribute=attribute)
    return joined(d, map(printed, parts))
