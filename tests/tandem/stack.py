"""Live services for the client's tests: render and derender as they are, a replay worker, and a gateway before them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import tandem
from gateway.app import GatewaySettings
from gateway.app import create_app as gateway_app
from tests.gateway import kit
from tests.live import serving

TARGETS = ("gateway", "pipeline")
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """Addresses of running services."""

    gateway: str
    render: str
    worker: str
    derender: str

    def target(self, kind: str, **given: Any) -> tandem.Gateway | tandem.Pipeline:
        if kind == "gateway":
            return tandem.Gateway(self.gateway, **given)
        return tandem.Pipeline(render=self.render, worker=self.worker, derender=self.derender, **given)

    def metric(self, name: str) -> float:
        """The worker's, summed over labels."""
        lines = httpx.get(f"{self.worker}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == f"tandem_{name}")

    def becomes(self, name: str, value: float, seconds: float = 5.0) -> None:
        deadline = time.monotonic() + seconds
        while (now := self.metric(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {now}, not {value}"
            time.sleep(0.02)


@contextmanager
def stack(folder: Path, *lines: JsonObject, model: str = kit.MODEL, **changes: Any) -> Iterator[Stack]:
    render, derenders = kit.standing(model)
    with serving(kit.replay_worker(folder, *lines, model=model, **changes)) as worker:
        behind = {"render_url": render, "derender_url": derenders[0], "worker_url": worker}
        with serving(gateway_app(GatewaySettings(**behind))) as gateway:
            yield Stack(gateway, render, worker, derenders[0])


def line(text: str, model: str = kit.MODEL, **more: Any) -> JsonObject:
    """A script's line that says this, and stops."""
    return {"token_ids": [*kit.ids_of(text, model), kit.profile(model).eos_token_ids[0]], "finish_reason": "stop", **more}
