"""`tandem bench` and `tandem bench compare` as commands."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tandem.bench.errors import BenchError
from tandem.bench.settings import BenchSettings
from tandem.options import fail, flag, from_settings

HELP = """Put load on a worker, on the per-chunk pipeline or on any OpenAI-compatible address, and measure what comes of it.

Ends with code 0 when it measured, failures included; 1 when every request failed; 2 when it could not begin; 130 after Ctrl-C."""


@from_settings(BenchSettings, help=HELP)
def _load(settings: BenchSettings) -> None:
    from tandem.bench.run import bench

    try:
        code = bench(settings)
    except BenchError as error:
        fail(str(error))
    sys.exit(code)


def _group(ctx: typer.Context, **values: Any) -> None:
    if ctx.invoked_subcommand is None:
        _load(ctx, **values)
    given = [name for name in values if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if given:
        fail(f"{ctx.invoked_subcommand} takes none of the bench's own flags, such as {flag(given[0])}")


_group.__doc__ = _load.__doc__
_group.__signature__ = inspect.signature(_load)  # type: ignore[attr-defined]
_group.__annotations__ = {}


def _compare(
    a: Annotated[Path, typer.Argument(help="Folder of a run.")], b: Annotated[Path, typer.Argument(help="Folder of another.")]
) -> None:
    """Show two runs side by side."""
    from tandem.bench.compare import compare

    try:
        compare(a, b, Console(markup=False, highlight=False))
    except BenchError as error:
        fail(str(error))


def app() -> typer.Typer:
    made = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)
    made.callback()(_group)
    made.command("compare")(_compare)
    return made
