"""The gateway: settings and app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import FastAPI
from pydantic import Field, SecretStr

from gateway.connections import transport
from gateway.metrics import GatewayMetrics
from gateway.pipeline import Services
from gateway.replicas import Replicas
from gateway.routes import router
from gateway.upstreams import Upstream
from protocol.models import Health
from service_kit import VERSION
from service_kit.app import build_app
from service_kit.metrics import Metrics
from service_kit.settings import ServiceSettings

_CONNECT_SECONDS = 5.0


class GatewaySettings(ServiceSettings):
    """Settings of `tandem gateway`. Where several addresses are given they are separated by commas."""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(8000, description="Port to listen on; 0 takes a free one.")
    render_url: str = Field("http://127.0.0.1:8001", description="Address(es) of render services.")
    worker_url: str = Field("http://127.0.0.1:8002", description="Address(es) of generate workers.")
    derender_url: str = Field("http://127.0.0.1:8003", description="Address(es) of derender services.")
    upstream_api_key: SecretStr | None = Field(None, description="Bearer token to send to the services behind the gateway.")
    upstream_timeout: Annotated[float, Field(gt=0)] = Field(
        600.0, description="Seconds a service may be silent before it is given up."
    )


def create_app(settings: GatewaySettings) -> FastAPI:
    metrics = Metrics("gateway")
    own = GatewayMetrics(metrics)
    key = settings.upstream_api_key
    client = httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key else {},
        timeout=httpx.Timeout(settings.upstream_timeout, connect=_CONNECT_SECONDS),
        transport=transport(),
    )

    def upstream(kind: str, urls: str) -> Upstream:
        return Upstream(kind, client, Replicas([url.strip() for url in urls.split(",") if url.strip()]), own)

    services = Services(
        upstream("render", settings.render_url),
        upstream("worker", settings.worker_url),
        upstream("derender", settings.derender_url),
        own,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with client:
            yield

    async def health() -> Health:
        return await _health([services.render, services.worker, services.derender])

    app = build_app(
        "gateway",
        "OpenAI's chat and text completions over render, generate and derender services.",
        settings,
        [router],
        metrics=metrics,
        lifespan=lifespan,
        health=health,
    )
    app.state.services = services
    return app


async def _health(upstreams: list[Upstream]) -> Health:
    """`ok` when every known replica of every kind is; `down` when a kind has none that answers."""
    states: dict[str, str] = {}
    down = False
    for upstream in upstreams:
        replicas = await upstream.replicas.ordered()
        answers = await asyncio.gather(*(upstream.healthy(replica) for replica in replicas))
        down = down or not any(answers)
        for replica, healthy in zip(replicas, answers, strict=True):
            states[f"{upstream.kind} {replica.url}"] = "ok" if healthy else "down"
    degraded = "down" in states.values()
    return Health(status="down" if down else "degraded" if degraded else "ok", service="gateway", version=VERSION, services=states)
