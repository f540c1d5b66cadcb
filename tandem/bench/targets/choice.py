"""The target that the flags name."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tandem.bench.settings import BenchSettings
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.targets import Target
from tandem.bench.targets.caller import Caller
from tandem.bench.targets.connections import Connections
from tandem.bench.targets.openai import OpenAITarget
from tandem.bench.targets.pipeline import PipelineTarget
from tandem.bench.targets.worker import WorkerTarget


@asynccontextmanager
async def target_of(settings: BenchSettings, clock: Stopwatch) -> AsyncIterator[Target]:
    """Leaving it closes what is open to its servers."""
    key = settings.api_key.get_secret_value() if settings.api_key else None
    tls = ssl.create_default_context()
    async with AsyncExitStack() as stack:

        async def caller(name: str, address: str, flag: str) -> Caller:
            connections = await stack.enter_async_context(Connections(key, tls))
            return Caller(name, address.rstrip("/"), connections, clock, flag)

        match settings.target:
            case "worker":
                yield WorkerTarget(await caller("worker", settings.address, "--url"), settings.model)
            case "pipeline":
                yield PipelineTarget(
                    render=await caller("render service", settings.render_url, "--render-url"),
                    worker=await caller("worker", settings.address, "--url"),
                    derender=await caller("derender service", settings.derender_url, "--derender-url"),
                    model=settings.model,
                )
            case "openai":
                yield OpenAITarget(await caller("OpenAI server", settings.address, "--url"), settings.model)
