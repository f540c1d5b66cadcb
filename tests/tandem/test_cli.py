"""The command line as a whole: what it offers, what it does not load, and how it refuses."""

import json
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli import COMMANDS, build
from tests.deploy.files import clean_environment
from tests.tandem.servers import free_port
from tests.tokenizers import folder

SERVICES = ["render", "derender", "text", "generate", "gateway"]
MODEL_LOADERS = ["render", "derender", "text", "generate", "prepare"]


def one_is_enough(names: list[str]) -> list[object]:
    """The first of them; the others, which go the same way, are for when there is time."""
    return [names[0], *(pytest.param(name, marks=pytest.mark.slow) for name in names[1:])]


def tandem(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tandem", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(**environment), check=False, timeout=120)


def test_version() -> None:
    assert tandem("--version").stdout == f"tandem {version('tandem-serving')}\n"


def test_no_command_line_loads_torch() -> None:
    code = """
import sys
from tandem.cli import build
build([])
heavy = {"torch", "transformers"} & sys.modules.keys()
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def help_of(*arguments: str) -> str:
    result = CliRunner().invoke(build(list(arguments)), [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


def test_help_lists_every_command() -> None:
    text = help_of()
    assert all(f"\n  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", SERVICES)
def test_flags_of_every_service(name: str) -> None:
    text = help_of(name)
    for flag in ("--host", "--port", "--api-key", "--log-format"):
        assert f" {flag} " in text
    assert (" --model " in text) == (name != "gateway")
    assert (" --workers " in text) == (name in {"render", "derender", "text"})


def test_up_has_every_services_flags_but_those_it_decides() -> None:
    text = help_of("up")
    for flag in ("--model", "--max-model-len", "--device", "--reasoning-parser", "--tool-call-parser", "--derender-port"):
        assert f" {flag} " in text
    for flag in ("--port", "--workers", "--worker-url"):
        assert f" {flag} " not in text


@pytest.mark.parametrize("name", one_is_enough(SERVICES))
def test_a_taken_port_is_one_line(name: str) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        done = tandem(name, "--port", str(sock.getsockname()[1]))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--port" in done.stderr


@pytest.mark.parametrize("name", one_is_enough(MODEL_LOADERS))
def test_a_model_that_is_not_there_is_one_line(name: str, tmp_path: Path) -> None:
    port = [] if name == "prepare" else ["--port", str(free_port())]
    done = tandem(name, "--model", str(tmp_path / "nothing"), *port)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tandem: ")
    assert "nothing" in line


@pytest.mark.parametrize(
    ("name", "flags", "right"),
    [
        ("derender", ("--tool-call-parser", "nope"), ("'nope'", "hermes", "openai", "none")),
        pytest.param("text", ("--reasoning-parser", "nope"), ("'nope'", "qwen3", "none"), marks=pytest.mark.slow),
        pytest.param("derender", ("--reasoning-parser", "openai_gptoss"), ("harmony",), marks=pytest.mark.slow),
        pytest.param(
            "text", ("--reasoning-parser", "qwen3", "--tool-call-parser", "openai"), ("qwen3+openai",), marks=pytest.mark.slow
        ),
    ],
)
def test_a_parser_that_cannot_be_is_one_line(name: str, flags: tuple[str, ...], right: tuple[str, ...]) -> None:
    done = tandem(name, "--port", str(free_port()), *flags)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tandem: ")
    assert all(word in line for word in right)


@pytest.mark.parametrize("log_format", ["json", pytest.param("console", marks=pytest.mark.slow)])
def test_the_formats_are_logged_at_start(log_format: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tandem",
        "derender",
        "--port",
        "0",
        "--log-format",
        log_format,
        "--model",
        str(folder("qwen3")),
    ]
    environment = clean_environment(TANDEM_MAX_MODEL_LEN="4096", TANDEM_TOOL_CALL_PARSER="", TANDEM_REASONING_PARSER="none")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline().strip()
        process.terminate()
    if log_format == "json":
        record = json.loads(line)
        assert (record["level"], record["logger"]) == ("info", "tandem.derender")
        line = record["message"]
    assert line.endswith("reasoning parser: none, tool call parser: hermes")


def test_bad_values_name_the_flag_or_the_variable() -> None:
    done = tandem("gateway", "--port", "70000")
    assert (done.returncode, done.stderr) == (2, "tandem: --port 70000: input should be less than or equal to 65535\n")
    done = tandem("gateway", TANDEM_LOG_LEVEL="loud")
    assert done.returncode == 2
    assert done.stderr.startswith("tandem: TANDEM_LOG_LEVEL: ")
