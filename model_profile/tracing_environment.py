"""Chat templates run on `Traced` text: every way in which Jinja makes text of text keeps the sources.

Text methods, `+` and slices are `Traced`'s own. The rest is here: `~` and output, `%` and `format`, filters, methods of the
template's own text (`', '.join(...)`), and which message the template is writing for: the one that its loop is at. To look at
another, which templates do to tell where a turn begins and ends, changes nothing of that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

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
    made_here,
    message_of,
    percent,
    printed,
    source,
    traced,
    traced_in,
    whole,
    write_for,
    written_for,
)
from model_profile.template_budget import checked
from model_profile.template_environment import GuardedCode, TemplateEnvironment


class TracedMessage(dict[str, Any]):
    """A message whose texts are traced to it, the names of its fields too: clients may add fields."""

    def __init__(self, message: Mapping[str, Any], index: int) -> None:
        own = source(index, supplied=True)
        # The role is one of a few words that the server knows: markers are made of it.
        super().__init__((traced(key, own), value if key == "role" else traced(value, own)) for key, value in message.items())
        self.index = index


def traced_messages(messages: Sequence[Mapping[str, Any]]) -> list[TracedMessage]:
    return [TracedMessage(message, index) for index, message in enumerate(messages)]


def write_about(*items: Any) -> None:
    """A loop's next turn begins: what is written in it is for the message that it is about, if it is about one."""
    for each in items:
        if isinstance(each, TracedMessage):
            write_for(each.index)
            return
    about = next((message_of(text.sources[0]) for text in traced_in([*items]) if text), OUTSIDE)
    if about != OUTSIDE:
        write_for(about)


class _CodeGenerator(GuardedCode):
    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        before = self.temporary_identifier()
        self.writeline(f"{before} = environment.written_for()")
        names = (node.target, *node.target.find_all(nodes.Name))
        about = [nodes.Name(name.name, "load", lineno=node.lineno) for name in names if isinstance(name, nodes.Name)]
        call = nodes.Call(nodes.EnvironmentAttribute("write_about"), about, [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))
        super().visit_For(node, frame)
        self.writeline(f"environment.write_for({before})")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if not isinstance(node.node, nodes.EnvironmentAttribute):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        # No template can spell this one, so the sandbox has nothing to say to it.
        self.visit(node.node, frame)
        self.write("(")
        for argument in node.args:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        # Jinja's own joins by `str.join`, which forgets.
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class TracingEnvironment(TemplateEnvironment):
    code_generator_class = _CodeGenerator
    write_about = staticmethod(write_about)
    write_for = staticmethod(write_for)
    written_for = staticmethod(written_for)

    def __init__(self) -> None:
        super().__init__()
        self.finalize = printed
        self.filters = {name: _keeping(function) for name, function in self.filters.items()}
        self.filters |= growth.bounded({"tojson": _to_json, "join": _join})

    @staticmethod
    def concat(parts: Iterable[Any]) -> Traced:
        return joined("", growth.counted(made_here(printed(part)) for part in parts))

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
