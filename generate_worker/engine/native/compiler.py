"""The C sources beside this file, compiled for this very processor the first time and kept in the cache."""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch

from model_profile.cache import prepared
from model_profile.errors import ProfileError

log = logging.getLogger("tandem.engine")

_SOURCES = Path(__file__).parent
_UNIT = "decoder.c"
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared")
_DEFINES: dict[torch.dtype, tuple[str, ...]] = {torch.float32: (), torch.bfloat16: ("-DBFLOAT16",)}

DTYPES = frozenset(_DEFINES)
"""Of weights and KV cache; arithmetic is float32."""


class NoKernels(Exception):
    """They cannot be compiled here. The message says why."""


def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The kernels over numbers of this type. Raises `NoKernels`."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise NoKernels(f"there is no C compiler ({compiler[0]})")
    command = [*compiler, *_FLAGS, *_DEFINES[dtype]]
    try:
        folder = prepared(f"kernels/{_key(compiler, command)}", lambda folder: _compile(command, folder))
        return _loaded(folder / "kernels.so")
    except (OSError, ProfileError) as error:
        raise NoKernels(str(error)) from error


@cache
def _loaded(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def _key(compiler: list[str], command: list[str]) -> str:
    """Of everything that makes another library: sources, compiler, flags, processor."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
    sources = [path.read_bytes() for path in sorted(_SOURCES.glob("*.[ch]"))]
    parts = [*sources, version, " ".join(command).encode(), _processor().encode()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def _processor() -> str:
    """What it can do, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        [*command, _UNIT, "-o", str(folder / "kernels.so"), "-lpthread", "-lm"],
        cwd=_SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise NoKernels(next((line for line in lines if "error" in line), f"{command[0]} exited with {done.returncode}"))
