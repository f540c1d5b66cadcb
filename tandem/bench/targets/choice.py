"""The target that the flags name."""

import httpx

from tandem.bench.settings import BenchSettings
from tandem.bench.stopwatch import Stopwatch
from tandem.bench.targets import Target
from tandem.bench.targets.caller import Caller
from tandem.bench.targets.openai import OpenAITarget
from tandem.bench.targets.pipeline import PipelineTarget
from tandem.bench.targets.worker import WorkerTarget


def target_of(settings: BenchSettings, client: httpx.AsyncClient, clock: Stopwatch) -> Target:
    def caller(name: str, address: str, flag: str) -> Caller:
        return Caller(name, address.rstrip("/"), client, clock, flag)

    match settings.target:
        case "worker":
            return WorkerTarget(caller("worker", settings.address, "--url"), settings.model)
        case "pipeline":
            return PipelineTarget(
                render=caller("render service", settings.render_url, "--render-url"),
                worker=caller("worker", settings.address, "--url"),
                derender=caller("derender service", settings.derender_url, "--derender-url"),
                model=settings.model,
            )
        case "openai":
            return OpenAITarget(caller("OpenAI server", settings.address, "--url"), settings.model)
