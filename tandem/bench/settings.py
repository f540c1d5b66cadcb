"""Flags of `tandem bench`."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tandem.bench.scenarios import DEFAULT_SCENARIO, SCENARIOS

TargetName = Literal["worker", "pipeline", "openai"]
DEFAULT_URLS: dict[TargetName, str] = {
    "worker": "http://127.0.0.1:8002",
    "pipeline": "http://127.0.0.1:8002",
    "openai": "http://127.0.0.1:8000",
}
DEFAULT_REQUESTS = 32
DEFAULT_CONCURRENCY = 4


def _parts(value: Any) -> Any:
    """A list as the environment spells it."""
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Concurrency = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=1e6)]


T = TypeVar("T")
Loads = Annotated[list[T], Field(min_length=1, max_length=100)]


class BenchSettings(BaseSettings):
    """What to load, with what, how hard, and where the results go."""

    model_config = SettingsConfigDict(env_prefix="TANDEM_", extra="ignore", protected_namespaces=())

    target: TargetName = Field(
        "openai", description="What is asked: a worker, the per-chunk pipeline, or an OpenAI-compatible address."
    )
    url: str | None = Field(
        None, description="Address of the worker (by default port 8002 of this machine) or of the OpenAI server (port 8000)."
    )
    render_url: str = Field("http://127.0.0.1:8001", description="Address of render, for --target pipeline.")
    derender_url: str = Field("http://127.0.0.1:8003", description="Address of derender, for --target pipeline.")
    model: str | None = Field(None, description="Model to ask for; by default the first that the server lists.")
    api_key: SecretStr | None = Field(None, description="Bearer token to send.")

    scenario: str = Field(DEFAULT_SCENARIO, description=f"Lengths of prompts and outputs: {', '.join(SCENARIOS)}.")
    requests_file: Path | None = Field(None, description="Requests of your own, one JSON object a line, instead of a scenario.")
    max_tokens: Annotated[int, Field(ge=1)] = Field(128, description="Output bound of lines of --requests-file that have none.")
    requests: Annotated[int, Field(ge=1)] | None = Field(
        None, description=f"Requests of each load; by default {DEFAULT_REQUESTS}, or the lines of --requests-file."
    )
    duration: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Seconds in which requests are begun, of each load; instead of --requests, or as a bound to them."
    )
    concurrency: Annotated[Loads[Concurrency] | None, NoDecode, BeforeValidator(_parts)] = Field(
        None,
        description=f"Closed loop: requests that run at once (by default {DEFAULT_CONCURRENCY}). Several: a load of each.",
    )
    arrival_rate: Annotated[Loads[Rate] | None, NoDecode, BeforeValidator(_parts)] = Field(
        None, description="Open loop: requests begun a second, whatever the server does. Several: a load of each."
    )
    arrivals: Literal["deterministic", "poisson"] = Field("poisson", description="How the open loop's requests are spaced.")
    max_in_flight: Annotated[int, Field(ge=1)] = Field(1024, description="Open loop: requests that may run at once; others wait.")
    warm_up: Annotated[int, Field(ge=0)] = Field(2, description="Requests before the first load, which are not measured.")
    timeout: Annotated[float, Field(gt=0)] = Field(300.0, description="Seconds that one request may take in all.")
    seed: Annotated[int, Field(ge=0, le=2**31)] = Field(
        0, description="Of lengths, contents and arrivals, and sent along. The same seed gives the same requests."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(
        0.0, description="At 0 (greedy) outputs are hashed, to compare servers."
    )
    ignore_eos: bool | None = Field(
        None,
        description="Make outputs as long as asked for. By default so for scenarios, on servers known to take it.",
    )
    vocab_size: Annotated[int, Field(ge=2)] = Field(32_000, description="A worker's prompts are made of ids below this.")

    output: Path = Field(Path("bench-results"), description="Folder in which each run makes a folder of its own.")
    plots: bool = Field(True, description="Write plots as PNG (needs matplotlib: the extra `bench`).")

    @field_validator("url", "render_url", "derender_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("an address begins with http:// or https://")
        return value

    @field_validator("concurrency", "arrival_rate")
    @classmethod
    def _different(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and len(set(value)) < len(value):
            raise ValueError("each load once: results are named by it")
        return value

    @field_validator("scenario")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in SCENARIOS:
            raise ValueError(f"there are the scenarios {', '.join(SCENARIOS)}")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> "BenchSettings":
        if self.concurrency is not None and self.arrival_rate is not None:
            raise ValueError("give --concurrency (closed loop) or --arrival-rate (open loop), not both")
        if self.requests_file is not None and "scenario" in self.model_fields_set:
            raise ValueError("give --scenario or --requests-file, not both")
        if self.requests_file is None and SCENARIOS[self.scenario].burst > 1 and self.arrival_rate is None:
            raise ValueError(f"the scenario {self.scenario} is about arrivals: it needs --arrival-rate")
        return self

    @property
    def address(self) -> str:
        """The worker's or the OpenAI server's, without what OpenAI's clients have at its end."""
        return (self.url or DEFAULT_URLS[self.target]).rstrip("/").removesuffix("/v1")

    @property
    def content(self) -> str:
        """What the requests are, as the results' folder calls it."""
        return self.requests_file.stem if self.requests_file is not None else self.scenario
