"""The compose files: what they say, and every command and health check in them run as plain processes."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.files import ROOT, clean_environment, compose, instructions
from tests.tandem.servers import free_port

BASE, GPU = "docker-compose.yml", "docker-compose.gpu.yml"
SERVICES: dict[str, Any] = compose(BASE)["services"]


def test_the_four_services_and_nothing_else() -> None:
    assert SERVICES.keys() == {"gateway", "render", "worker", "derender"}
    assert SERVICES["derender"]["deploy"]["replicas"] == 2


def test_only_the_gateway_is_reachable_from_outside() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["gateway"]
    assert SERVICES["gateway"]["ports"] == ["8000:8000"]
    assert compose(BASE, environment={"TANDEM_GATEWAY_PORT": "9"})["services"]["gateway"]["ports"] == ["9:8000"]


def test_torch_is_in_the_worker_only() -> None:
    images = {name: service["build"]["dockerfile"] for name, service in SERVICES.items()}
    assert images.pop("worker") == "deploy/Dockerfile.worker"
    assert set(images.values()) == {"deploy/Dockerfile.text"}
    assert not any("torch" in arguments or "worker" in arguments for _, arguments in instructions("deploy/Dockerfile.text"))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_checked_and_restarted(name: str) -> None:
    service = SERVICES[name]
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["environment"]["TANDEM_HOST"] == "0.0.0.0"


@pytest.mark.parametrize("name", ["render", "worker", "derender"])
def test_prepared_models_are_shared(name: str) -> None:
    volume, _, folder = SERVICES[name]["volumes"][0].partition(":")
    assert volume in compose(BASE)["volumes"]
    assert folder == SERVICES[name]["environment"]["TANDEM_CACHE_DIR"]
    assert ("VOLUME", folder) in instructions(SERVICES[name]["build"]["dockerfile"])


def test_the_gateway_waits_for_and_names_what_is_behind_it() -> None:
    gateway = SERVICES["gateway"]
    assert {name: wait["condition"] for name, wait in gateway["depends_on"].items()} == dict.fromkeys(
        ["render", "worker", "derender"], "service_healthy"
    )
    for name in gateway["depends_on"]:
        port = SERVICES[name]["environment"]["TANDEM_PORT"]
        assert gateway["environment"][f"TANDEM_{name.upper()}_URL"] == f"http://{name}:{port}"


def test_the_gpu_file_changes_the_worker_only() -> None:
    merged = compose(BASE, GPU)["services"]
    assert {name for name in merged if merged[name] != SERVICES[name]} == {"worker"}
    worker = merged["worker"]
    assert worker["command"] == ["generate", "--device", "cuda"]
    assert worker["deploy"]["resources"]["reservations"]["devices"] == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
    assert worker["build"]["args"]["TORCH"].startswith("torch")
    assert worker["healthcheck"] == SERVICES["worker"]["healthcheck"]


def test_build_arguments_are_the_dockerfiles_own() -> None:
    declared = {arguments.split("=")[0] for name, arguments in instructions("deploy/Dockerfile.worker") if name == "ARG"}
    assert SERVICES["worker"]["build"]["args"].keys() == declared


@contextmanager
def running(name: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """The service's command as the image's entry point would run it, ended as compose ends it."""
    command = [sys.executable, "-m", "tandem", *SERVICES[name]["command"]]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                assert process.wait(30) == 0
            finally:
                process.kill()


def healthy(name: str, environment: dict[str, str]) -> bool:
    """The health check, as it stands in the file."""
    _, python, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert python == "python"
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False, timeout=30)
    return done.returncode == 0


@pytest.mark.slow
def test_every_command_and_health_check_runs(tmp_path: Path) -> None:
    ports = {name: str(free_port()) for name in SERVICES}
    environments = {}
    for name, service in SERVICES.items():
        variables = {key: str(value) for key, value in service["environment"].items() if key != "TANDEM_CACHE_DIR"}
        variables |= {
            key: re.sub(r"//(\w+):\d+", lambda match: f"//127.0.0.1:{ports[match[1]]}", value)
            for key, value in variables.items()
            if key.endswith("_URL")
        }
        environments[name] = clean_environment(**variables | {"TANDEM_PORT": ports[name]})
    assert not healthy("gateway", environments["gateway"])
    with ExitStack() as stack:
        for name in ("render", "worker", "derender", "gateway"):
            log = tmp_path / f"{name}.log"
            stack.enter_context(running(name, environments[name], log))
            deadline = time.monotonic() + 180
            while not healthy(name, environments[name]):
                assert time.monotonic() < deadline, f"{name} did not become healthy:\n{log.read_text()}"
                time.sleep(0.2)
        question = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0,
        }
        answer = httpx.post(f"http://127.0.0.1:{ports['gateway']}/v1/chat/completions", json=question, timeout=120, trust_env=False)
        assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    assert all(line.startswith("{") for line in (tmp_path / "gateway.log").read_text().splitlines())


def test_every_variable_is_optional() -> None:
    for name in (BASE, GPU):
        assert "${" not in str(compose(name))
        assert all(":-" in found for found in re.findall(r"\$\{[^}]*\}", (ROOT / name).read_text()))
