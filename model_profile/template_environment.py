"""The Jinja that chat templates are written for: transformers' filters and functions, in a sandbox, within a budget.

The budget (`template_budget`) is asked at every turn of a loop and every call, at the end of every text (an output, a macro, a
block), and by what `template_growth` knows to grow. So loops, recursion and text that grows end; a single step that works on long
lists or text, and the compiling, take the time that they take.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn, cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from model_profile import template_growth as growth
from model_profile.template import TemplateRefused
from model_profile.template_budget import Buffer, checked, concat, tick


class GuardedCode(CodeGenerator):
    """Asks the budget where templates go round, and where `+` and `~` make text that is used further.

    Sums are asked about as a whole, and where they are written at once not at all: the output that they become is measured.
    """

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        # What stands here is written as it is behind "environment.".
        node.body.insert(0, nodes.ExprStmt(nodes.EnvironmentAttribute("tick()", lineno=node.lineno), lineno=node.lineno))
        super().visit_For(node, frame)

    def buffer(self, frame: Frame) -> None:
        frame.buffer = self.temporary_identifier()
        self.writeline(f"{frame.buffer} = environment.buffer()")

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        for part in node.nodes:
            self._leave(part)
        super().visit_Output(node, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        if id(node) in self._left:
            super().visit_Add(node, frame)
            return
        self._leave(node)
        self.write("environment.checked(")
        super().visit_Add(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.checked(")
        super().visit_Concat(node, frame)
        self.write(")")

    @cached_property
    def _left(self) -> dict[int, nodes.Node]:
        """Sums that need no check of their own."""
        return {}

    def _leave(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Add):
            self._left[id(node)] = node
            self._leave(node.left)
            self._leave(node.right)
        elif isinstance(node, nodes.CondExpr):
            self._leave(node.expr1)
            if node.expr2 is not None:
                self._leave(node.expr2)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    code_generator_class = GuardedCode
    intercepted_binops = frozenset({"*", "**", "%"})
    tick = staticmethod(tick)
    checked = staticmethod(checked)
    concat = staticmethod(concat)
    buffer = Buffer

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters = growth.bounded(self.filters | {"tojson": growth.to_json})
        self.binop_table |= {"*": growth.times, "**": growth.power}
        self.globals |= {"raise_exception": _refuse, "strftime_now": _now, "namespace": _namespace, "lipsum": growth.lorem}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str | bytes):
            growth.check_percent(left, right)
        return checked(self.binop_table[operator](left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        tick()
        owner = getattr(__obj, "__self__", None)
        if not isinstance(owner, str | bytes | int):
            return checked(super().call(__context, __obj, *args, **kwargs))
        for name in _LOCALS:
            kwargs.pop(name, None)
        growth.check_method(owner, __obj.__name__, *args, **kwargs)
        if growth.is_text_method(__obj):
            # Jinja has nothing to ask about these, and they are most of a template's calls.
            return checked(__obj(*args, **kwargs))
        return checked(super().call(__context, __obj, *args, **kwargs))

    def getattr(self, obj: Any, attribute: str) -> Any:
        # What Jinja comes to for a mapping's item, without the error on the way there: most of what templates do.
        if isinstance(obj, dict) and attribute in obj and attribute not in _OF_MAPPINGS:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # Asked about every attribute, most of which are no methods.
        if not isinstance(value, _METHODS) or super().wrap_str_format(value) is None:
            return None
        layout = cast(str, value.__self__)

        def bounded(*args: Any, **kwargs: Any) -> str:
            positional, named = ((), args[0]) if value.__name__ == "format_map" else (args, kwargs)
            return type(layout)(growth.formatter(self, layout).vformat(layout, positional, named))

        return bounded


_OF_MAPPINGS = frozenset(dir(dict))
_METHODS = (MethodType, BuiltinMethodType)
_LOCALS = ("_loop_vars", "_block_vars")
"""What Jinja hands to every call beside its arguments, for callables that ask for the context."""


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
