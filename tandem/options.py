"""Flags from settings: each field of a settings class is a flag and an environment variable, and is declared once, in the class.

A flag beats the environment beats the default. pydantic checks all three, so a bound holds wherever a value came from.
"""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

import typer
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings
from pydantic_settings.exceptions import SettingsError

S = TypeVar("S", bound=BaseSettings)

USAGE_ERROR = 2
_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", SecretStr: "TEXT"}


def fail(message: str, code: int = USAGE_ERROR) -> NoReturn:
    """Ends the process with one line for the person who started it."""
    print(f"tandem: {message}", file=sys.stderr)
    sys.exit(code)


def from_settings(
    settings: type[S], *, hidden: frozenset[str] = frozenset(), help: str | None = None
) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Makes a command of a function that takes `settings`: its flags are the class's fields, but for the `hidden` ones.

    Flags arrive as text and are parsed by pydantic alone. A value that it refuses ends the process with exit code 2 and a line that
    names the flag, or the variable where the value came from the environment.
    """
    fields = {name: field for name, field in settings.model_fields.items() if name not in hidden}

    def decorate(function: Callable[[S], None]) -> Callable[..., None]:
        def command(ctx: typer.Context, **values: Any) -> None:
            given = {name: _split(fields[name], value) for name, value in values.items() if _source(ctx, name) == "COMMANDLINE"}
            function(load(settings, given))

        command.__name__, command.__doc__ = function.__name__, help or function.__doc__
        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        parameters += [_parameter(settings, name, field) for name, field in fields.items()]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def load(settings: type[S], given: dict[str, Any]) -> S:
    """The settings with the `given` flags over the environment. Ends the process on a value that they refuse."""
    try:
        return settings(**given)
    except ValidationError as error:
        fail("; ".join(_complaint(settings, given, problem["loc"], problem["msg"]) for problem in error.errors(include_url=False)))
    except SettingsError as error:
        fail(f"the environment: {error}")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(settings: type[BaseSettings], name: str) -> str:
    return f"{settings.model_config.get('env_prefix', '')}{name}".upper()


def _complaint(settings: type[BaseSettings], given: dict[str, Any], loc: tuple[int | str, ...], message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not loc:
        return message
    name = str(loc[0])
    where = flag(name) if name in given else variable(settings, name)
    field = settings.model_fields.get(name)
    secret = field is not None and SecretStr in _members(field.annotation)
    shown = ",".join(given[name]) if isinstance(given.get(name), list) else given.get(name)
    value = f" {shown}" if name in given and not secret else ""
    return f"{where}{value}: {message[:1].lower()}{message[1:]}"


def _parameter(settings: type[BaseSettings], name: str, field: FieldInfo) -> inspect.Parameter:
    members = _members(field.annotation)
    default = field.get_default(call_default_factory=True)
    declaration, metavar = flag(name), None
    annotation: Any
    if bool in members:
        declaration, annotation = f"{flag(name)}/--no-{name.replace('_', '-')}", bool | None
    elif list in members:
        annotation, metavar, default = list[str] | None, "TEXT,…", [str(item) for item in default or ()] or None
    else:
        annotation, metavar = str | None, _metavar(members)
        default = None if default is None or SecretStr in members else str(default)
    option = typer.Option(
        declaration,
        help=field.description,
        envvar=variable(settings, name),
        show_envvar=True,
        show_default=default is not None,
        metavar=metavar,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option])


def _metavar(members: list[Any]) -> str:
    choices = [str(value) for value in members if not isinstance(value, type)]
    return f"[{'|'.join(choices)}]" if choices else next((_METAVARS[kind] for kind in members if kind in _METAVARS), "TEXT")


def _members(annotation: Any) -> list[Any]:
    """What an annotation allows: plain types (`list` for every list) and, of a `Literal`, its values."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (list, tuple, set, frozenset):
        return [list]
    return [annotation] if annotation is not type(None) else []


def _split(field: FieldInfo, value: Any) -> Any:
    """A list flag may be repeated, and each may hold several values with commas between."""
    if list in _members(field.annotation) and isinstance(value, list):
        return [part for item in value for part in item.split(",") if part]
    return value


def _source(ctx: typer.Context, name: str) -> str:
    source = ctx.get_parameter_source(name)
    return "DEFAULT" if source is None else source.name
