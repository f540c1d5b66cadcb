"""What the deployment files say, read as Docker would: no engine is needed for that."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
Yaml = dict[str, Any]

_REPLACED = frozenset({"command", "entrypoint", "test"})
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def compose(*names: str, environment: dict[str, str] | None = None) -> Yaml:
    """The compose files laid over each other, with variables put in."""
    merged: Yaml = {}
    for name in names:
        merged = _merge(merged, yaml.safe_load((ROOT / name).read_text()))
    filled: Yaml = _interpolate(merged, environment or {})
    return filled


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, in order."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / dockerfile).read_text(), flags=re.M).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0].upper(), line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def context_names() -> set[str]:
    """The top-level names that .dockerignore, which begins by leaving everything out, lets into an image."""
    return {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def copy_context(target: Path) -> None:
    for name in context_names():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, target / name)


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without settings of Tandem, but for where prepared models are kept."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_") or name == "TANDEM_CACHE_DIR"}
    return kept | variables


def _merge(under: Any, over: Any) -> Any:
    """Compose's rules: mappings merge, lists are appended, the rest is replaced; commands and health checks are replaced whole."""
    if isinstance(under, dict) and isinstance(over, dict):
        both = {key: over[key] if key in _REPLACED else _merge(under[key], over[key]) for key in under.keys() & over.keys()}
        return under | over | both
    if isinstance(under, list) and isinstance(over, list):
        return under + over
    return over


def _interpolate(value: Any, environment: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolate(each, environment) for key, each in value.items()}
    if isinstance(value, list):
        return [_interpolate(each, environment) for each in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: environment.get(match[1]) or match[2] or "", value)
    return value
