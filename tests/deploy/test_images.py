"""The Dockerfiles: what goes in, and their install steps run in clean virtual environments."""

import os
import subprocess
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.deploy.files import ROOT, clean_environment, context_names, copy_context, instructions

DOCKERFILES = ["deploy/Dockerfile.text", "deploy/Dockerfile.worker"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_shape(dockerfile: str) -> None:
    steps = instructions(dockerfile)
    assert steps[0] == ("FROM", "python:3.12-slim")
    assert ("USER", "tandem") in steps
    assert ("ENTRYPOINT", '["tandem"]') in steps
    assert all(
        run.startswith(("pip install ", "useradd ", "apt-get update && apt-get install ")) for name, run in steps if name == "RUN"
    )


def test_the_context_holds_every_package_and_little_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {pattern.rstrip("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert context_names() == packages | {"pyproject.toml", project["project"]["readme"]}
    assert all((ROOT / name).exists() for name in context_names())


def install(dockerfile: str, folder: Path) -> Path:
    """Runs the `RUN pip install` steps over the build context, with default build arguments. Returns the Python they made."""
    context, environment = folder / "src", folder / "venv"
    context.mkdir()
    copy_context(context)
    venv.create(environment, with_pip=True)
    steps = instructions(dockerfile)
    arguments = dict(argument.split("=", 1) for name, argument in steps if name == "ARG")
    variables = {name: value.strip('"') for name, value in arguments.items() if value.strip('"')}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for name, command in steps:
        if name == "RUN" and command.startswith("pip install"):
            done = subprocess.run(
                ["sh", "-ec", command], cwd=context, env=clean_environment(**variables), capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    return environment / "bin" / "python"


def ask(python: Path, code: str) -> str:
    done = subprocess.run(
        [python, "-c", code], cwd=python.parent, capture_output=True, text=True, env=clean_environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INSTALLED = "import importlib.metadata as m; print(' '.join(sorted(d.name.lower() for d in m.distributions())))"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_text_image_has_no_torch_and_serves(tmp_path: Path) -> None:
    python = install(DOCKERFILES[0], tmp_path)
    assert not {"torch", "transformers"} & set(ask(python, INSTALLED).split())
    for command in ("render", "derender", "text", "gateway", "generate"):
        done = subprocess.run([python.with_name("tandem"), command, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "--port" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not version("torch").endswith("+cpu"), reason="a torch with CUDA would be fetched anew: gigabytes")
def test_the_worker_image_has_torch(tmp_path: Path) -> None:
    python = install(DOCKERFILES[1], tmp_path)
    assert {"torch", "transformers", "accelerate"} <= set(ask(python, INSTALLED).split())
    assert ask(python, "import torch; print(torch.__version__.split('+')[0])") == "2.13.0"
    assert ask(python, "import torch; from generate_worker.engine.native import compiler; compiler.library(torch.float32)") == ""
