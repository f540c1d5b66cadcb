"""What the README and docs tell people to do, done, over the real model: up's own curl line, each Python example, the chat."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.deploy.files import ROOT, clean_environment
from tests.tandem.test_up import READY, Up, running

QUESTION = "What is the capital of France?"
DEFAULT_PORTS = {"gateway": "8000", "render": "8001", "worker": "8002", "derender": "8003"}
PAGES = ("README.md", "docs/token-identity.md", "docs/client.md")
EXAMPLES = [example for page in PAGES for example in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--engine", "torch") as started:
        started.wait_for(READY)
        yield started


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, env=clean_environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_python_examples(up: Up, example: str) -> None:
    for name, port in DEFAULT_PORTS.items():
        example = example.replace(port, up.addresses[name].rpartition(":")[2])
    assert "Paris" in run(sys.executable, "-c", example)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_line_that_up_prints(up: Up) -> None:
    (line,) = re.findall(r"^  (curl .*)$", up.output.read_text(), re.M)
    assert "Paris" in run("sh", "-c", line)
    assert line.replace(up.addresses["gateway"], "http://127.0.0.1:8000") in (ROOT / "README.md").read_text()


def test_chat(up: Up) -> None:
    command = [sys.executable, "-m", "tandem", "chat", "--url", up.addresses["gateway"], "--temperature", "0"]
    assert "Paris" in run(*command, given=f"{QUESTION}\n")
