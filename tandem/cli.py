"""The command line. One function a command; each imports what its command needs, so that none loads another's libraries."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from service_kit import VERSION
from service_kit.parent import end_with_parent
from tandem.options import from_settings

Command = Callable[..., None]


def up() -> Command:
    from tandem.up import DECIDED_HERE, UpSettings
    from tandem.up import up as run

    @from_settings(UpSettings, hidden=DECIDED_HERE)
    def up(settings: UpSettings) -> None:
        """Run render, worker, derender and gateway on this machine, together.

        Takes the flags of all four and hands them on. Ctrl-C stops them; if one dies, the others are stopped."""
        sys.exit(run(settings))

    return up


def render() -> Command:
    from model_profile.errors import ProfileError
    from render_service.app import RenderSettings, create_app
    from tandem.serve import serve

    @from_settings(RenderSettings)
    def render(settings: RenderSettings) -> None:
        """Serve render: an OpenAI request in, prompt token ids out. Needs no torch."""
        serve(create_app, settings, refusals=(ProfileError,))

    return render


def derender() -> Command:
    from derender_service.app import REFUSALS, DerenderSettings, create_app
    from tandem.serve import serve

    @from_settings(DerenderSettings)
    def derender(settings: DerenderSettings) -> None:
        """Serve derender: token ids in, an OpenAI answer out. Needs no torch."""
        serve(create_app, settings, refusals=REFUSALS)

    return derender


def text() -> Command:
    from derender_service.app import REFUSALS
    from tandem.serve import serve
    from tandem.text import TextSettings, create_app

    @from_settings(TextSettings)
    def text(settings: TextSettings) -> None:
        """Serve render and derender on one port, as vLLM's render server does."""
        serve(create_app, settings, refusals=REFUSALS)

    return text


def generate() -> Command:
    from generate_worker.app import WorkerSettings, create_app
    from model_profile.errors import ProfileError
    from tandem.prepare import need_torch
    from tandem.serve import serve

    @from_settings(WorkerSettings)
    def generate(settings: WorkerSettings) -> None:
        """Serve the worker: token ids in, token ids out."""
        if settings.engine == "torch":
            need_torch()
        serve(create_app, settings, refusals=(ProfileError,))

    return generate


def gateway() -> Command:
    from gateway.app import GatewaySettings, create_app
    from tandem.serve import serve

    @from_settings(GatewaySettings)
    def gateway(settings: GatewaySettings) -> None:
        """Serve the OpenAI API over render, worker and derender."""
        serve(create_app, settings)

    return gateway


def chat() -> Command:
    from tandem.chat import ChatSettings
    from tandem.chat import chat as run

    @from_settings(ChatSettings)
    def chat(settings: ChatSettings) -> None:
        """Talk to the model in the terminal. Ctrl-C stops an answer, Ctrl-D or /exit leaves."""
        sys.exit(run(settings))

    return chat


def prepare() -> Command:
    from tandem.prepare import PrepareSettings
    from tandem.prepare import prepare as run

    @from_settings(PrepareSettings)
    def prepare(settings: PrepareSettings) -> None:
        """Fetch and convert a model once, so that later starts take seconds. `up` does it by itself."""
        run(settings)

    return prepare


def bench() -> typer.Typer:
    from tandem.bench.command import app

    return app()


COMMANDS: dict[str, Callable[[], Command | typer.Typer]] = {
    "up": up,
    "chat": chat,
    "render": render,
    "generate": generate,
    "derender": derender,
    "text": text,
    "gateway": gateway,
    "prepare": prepare,
    "bench": bench,
}


def build(arguments: list[str]) -> typer.Typer:
    """The app with the command that `arguments` name, or with all of them where they name none (help, a typing error)."""
    app = typer.Typer(name="tandem", rich_markup_mode=None, add_completion=False, no_args_is_help=True)
    app.callback()(_tandem)
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    names = [named] if named in COMMANDS else [] if "--version" in arguments else list(COMMANDS)
    for name in names:
        command = COMMANDS[name]()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _show_version(given: bool) -> None:
    if given:
        print(f"tandem {VERSION}")
        raise typer.Exit


def _tandem(version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version)] = False) -> None:
    """LLM serving split at the token boundary: render, generate, derender, and an OpenAI-compatible gateway.

    Every flag is also an environment variable, TANDEM_ and the flag's name; the flag wins."""


def main() -> None:
    end_with_parent()
    build(sys.argv[1:])(prog_name="tandem")
