"""The folder of a run: `run.json`, `requests.csv`, `requests.json`; written, and read again."""

import csv
import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protocol.errors import invalid
from service_kit import VERSION
from tandem.bench.errors import BenchError
from tandem.bench.load import ClosedLoop
from tandem.bench.plan import Plan
from tandem.bench.rows import Row, rows_of
from tandem.bench.seen import Attempt
from tandem.bench.settings import BenchSettings
from tandem.bench.summary import DEFINITIONS, Point, Run, name_of
from tandem.bench.targets import Server

RUN, TABLE, REQUESTS = "run.json", "requests.csv", "requests.json"


def folder_name(settings: BenchSettings, plan: Plan, started: datetime) -> str:
    """What was run, in a name: `worker-short-short-c4-seed0-20261130T071500`."""
    content = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in settings.content)
    loads = "_".join(map(name_of, plan.loads))
    return "-".join([settings.target, content, loads, f"seed{settings.seed}", f"{started:%Y%m%dT%H%M%S}"])


def make_folder(parent: Path, name: str) -> Path:
    """A new one: where the name is taken, with a number behind it. Raises `BenchError` where none can be made."""
    try:
        for number in range(1, 1000):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                if not parent.is_dir():
                    raise
                continue
            return folder
    except OSError as error:
        raise BenchError(f"--output {parent}: no folder can be made there: {error.strerror or error}") from error
    raise BenchError(f"--output {parent}: there are a thousand folders {name} already")


def run_of(
    settings: BenchSettings, plan: Plan, server: Server, started: datetime, points: list[Point], *, interrupted: bool
) -> Run:
    configuration = settings.model_dump(mode="json", exclude={"api_key", "plots", "output", "url"})
    own: dict[str, Any] = {
        "requests": plan.bounds.requests,
        "ignore_eos": plan.sampling.ignore_eos,
        "concurrency": [load.concurrency for load in plan.loads if isinstance(load, ClosedLoop)] or None,
        "scenario": None if plan.lines is not None else settings.scenario,
    }
    return Run(
        version=VERSION,
        started_at=started.isoformat(timespec="seconds"),
        interrupted=interrupted,
        configuration={**configuration, **own},
        server={"model": server.model, **server.addresses},
        environment=_environment(),
        definitions=DEFINITIONS,
        points=points,
    )


def write(folder: Path, run: Run, attempts: Mapping[str, Sequence[Attempt]]) -> None:
    """Raises `BenchError` where it cannot."""
    rows = rows_of(attempts)
    try:
        (folder / RUN).write_text(json.dumps(run.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
        (folder / REQUESTS).write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
        with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys() if rows else ())
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise BenchError(f"the results cannot be written to {folder}: {error.strerror or error}") from error


def read_run(folder: Path) -> Run:
    """Raises `BenchError` for what is no run's folder, or one of another version."""
    path = folder / RUN if folder.is_dir() else folder
    try:
        return Run.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BenchError(f"{folder} is no folder of a run: {path}: {error.strerror or error}") from error
    except ValidationError as error:
        raise BenchError(f"{path} is no run of `tandem bench`, or of another version: {invalid(error).message}") from error


def read_rows(folder: Path) -> list[Row]:
    """Raises `BenchError`."""
    path = (folder if folder.is_dir() else folder.parent) / REQUESTS
    try:
        rows: list[Row] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from error
    return rows


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "httpx": version("httpx"),
    }
