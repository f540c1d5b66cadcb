"""The cache folder: what is prepared once (a download, a conversion) and found ready at every later start.

Several processes may start at the same time, so each entry is made under a lock in a folder of its own and moved into place whole:
an entry that exists is complete.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from model_profile.errors import ProfileError


def cache_dir() -> Path:
    """`TANDEM_CACHE_DIR`, else the platform's place for caches."""
    given = os.environ.get("TANDEM_CACHE_DIR")
    return Path(given).expanduser() if given else platformdirs.user_cache_path("tandem")


def prepared(name: str, fill: Callable[[Path], None]) -> Path:
    """The cache's folder `name`; `fill` writes its files the first time. Raises `ProfileError` when they cannot be written."""
    target = cache_dir() / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{target.name}.lock")):
            if target.is_dir():
                return target
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
                fresh = Path(scratch) / "entry"
                fresh.mkdir()
                fill(fresh)
                fresh.rename(target)
    except OSError as error:
        raise ProfileError(f"cannot prepare {target}: {error}; set TANDEM_CACHE_DIR to a folder that can be written") from error
    return target
