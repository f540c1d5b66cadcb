"""`tandem up`: the four services as processes of this machine, up together and down together."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, SecretStr
from rich.console import Console

from derender_service.app import DerenderSettings
from gateway.app import GatewaySettings
from generate_worker.app import WorkerSettings
from render_service.app import RenderSettings
from service_kit import parent
from service_kit.lifecycle import GRACE_SECONDS
from tandem.fleet import Fleet, FleetError, Service
from tandem.options import fail, variable
from tandem.ports import PortError, Wanted, claim, url

LOOPBACK = "127.0.0.1"
_COLOURS = {"gateway": "green", "render": "cyan", "worker": "magenta", "derender": "blue"}
Port = Annotated[int, Field(ge=0, le=65535)]


class UpSettings(GatewaySettings, RenderSettings, DerenderSettings, WorkerSettings):
    """Every service's settings, handed on to those that know them, and where the services listen."""

    host: str = Field(LOOPBACK, description="Address the gateway listens on. The services behind it stay on the loopback.")
    gateway_port: Port = Field(8000, description="Port of the gateway; 0 takes a free one, here and below.")
    render_port: Port = Field(8001, description="Port of the render service.")
    worker_port: Port = Field(8002, description="Port of the generate worker.")
    derender_port: Port = Field(8003, description="Port of the derender service; further replicas take the next ones.")
    derender_replicas: Annotated[int, Field(ge=1, le=64)] = Field(1, description="Derender processes behind the gateway.")
    start_seconds: Annotated[float, Field(gt=0)] = Field(180.0, description="How long the services may take to become ready.")


DECIDED_HERE = frozenset({"port", "workers", "render_url", "worker_url", "derender_url", "upstream_api_key"})
"""Settings of single services that follow from how they are put together; they are no flags of `up`."""


def up(settings: UpSettings) -> int:
    """Runs the four services until told to stop. Returns the exit code: 0 if it was told to, 1 if a service failed."""
    console = Console(stderr=True, highlight=False)
    try:
        stages = plan(settings, claim(_ports(settings)))
    except PortError as error:
        fail(str(error))
    return asyncio.run(_run(settings, stages, console))


def plan(settings: UpSettings, ports: Sequence[int]) -> list[list[Service]]:
    """The processes, in the order in which they are stopped: the gateway first, so that its streams can run to their end."""
    gateway_port, render_port, worker_port, *derender_ports = ports
    shared = handed_on(settings)

    def service(name: str, command: str, host: str, port: int, *flags: str, label: str | None = None) -> Service:
        line = [sys.executable, "-m", "tandem", command, "--host", host, "--port", str(port), *flags]
        return Service(label or name, line, url(host, port), _COLOURS[name], shared)

    render = service("render", "render", LOOPBACK, render_port)
    worker = service("worker", "generate", LOOPBACK, worker_port)
    derenders = [
        service("derender", "derender", LOOPBACK, port, label=f"derender-{index}" if len(derender_ports) > 1 else None)
        for index, port in enumerate(derender_ports, 1)
    ]
    behind = ["--render-url", render.url, "--worker-url", worker.url, "--derender-url", ",".join(each.url for each in derenders)]
    gateway = service("gateway", "gateway", settings.host, gateway_port, *behind)
    return [[gateway], [render, worker, *derenders]]


def handed_on(settings: UpSettings) -> dict[str, str]:
    """The settings that were given, as environment variables: flags would show an API key to everyone who lists processes."""
    own = set(UpSettings.__annotations__) | DECIDED_HERE
    given: dict[str, Any] = {name: getattr(settings, name) for name in settings.model_fields_set if name not in own}
    if settings.api_key:
        given["upstream_api_key"] = settings.api_key
    if settings.engine == "torch":
        # What response_format asks of the gateway needs a worker that knows the tokenizer.
        given.setdefault("tokenizer_for_grammar", settings.model)
    # One process each: they share the machine with each other and with the model.
    given.setdefault("workers", os.environ.get(variable(UpSettings, "workers"), 1))
    return {variable(UpSettings, name): _text(value) for name, value in given.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, bool | list) else str(value)


def _ports(settings: UpSettings) -> list[Wanted]:
    first = settings.derender_port
    return [
        Wanted("gateway", settings.host, settings.gateway_port, "--gateway-port"),
        Wanted("render", LOOPBACK, settings.render_port, "--render-port"),
        Wanted("worker", LOOPBACK, settings.worker_port, "--worker-port"),
        *(
            Wanted("derender", LOOPBACK, first + index if first else 0, "--derender-port")
            for index in range(settings.derender_replicas)
        ),
    ]


async def _run(settings: UpSettings, stages: list[list[Service]], console: Console) -> int:
    stop = _stop_requested()
    code = await _prepare(settings, stop)
    if code or stop.is_set():
        return code
    async with Fleet(stages, console) as fleet:
        try:
            await fleet.start()
            if await _unless(stop, fleet.ready(settings.start_seconds), fleet.death()):
                _announce(settings, fleet.services)
                await _unless(stop, fleet.death())
        except FleetError as error:
            console.print(f"tandem: {error}", style="bold red")
            code = 1
        stop.clear()
        console.print("tandem: stopping; once more to stop at once" if not code else "tandem: stopping the others")
        await _unless(stop, fleet.stop(settings.drain_seconds + 2 * GRACE_SECONDS))
    return code


async def _prepare(settings: UpSettings, stop: asyncio.Event) -> int:
    """Makes the model ready in a process of its own: it may need torch, and this one is to stay small. Returns its exit code."""
    flags = ["--no-weights"] if settings.engine != "torch" else []
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tandem", "prepare", *flags],
        env={**os.environ, **handed_on(settings), **parent.child_environment()},
        start_new_session=True,
    )
    if not await _unless(stop, process.wait()):
        process.terminate()
        await process.wait()
        return 0
    return process.returncode or 0


def _stop_requested() -> asyncio.Event:
    """Set when a signal asks this process to stop."""
    event = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, event.set)
    return event


async def _unless(stop: asyncio.Event, *work: Any) -> bool:
    """Awaits `work` until the first of it ends or fails, or `stop` is set. True if it was the work that ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
        for task in ended:
            task.result()
        return bool(ended)
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


def _announce(settings: UpSettings, services: list[Service]) -> None:
    gateway = services[0]
    width = max(len(service.name) for service in services)
    addresses = "\n".join(f"  {service.name:<{width}}  {service.url}" for service in services)
    message = {"role": "user", "content": "What is the capital of France?"}
    body = json.dumps({"model": settings.served_model_name or settings.model, "messages": [message], "temperature": 0})
    key = ' -H "Authorization: Bearer $TANDEM_API_KEY"' if settings.api_key else ""
    curl = f"curl {gateway.url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
    print(f"\nTandem is ready.\n\n{addresses}\n\nTry it:\n\n  {curl}\n\nCtrl-C stops it.\n", flush=True)
