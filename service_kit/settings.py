"""Settings that every service has. Each field is a flag of the command line and an environment variable `TANDEM_<NAME>`."""

import os
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024


class ServiceSettings(BaseSettings):
    """Where and how a service listens."""

    model_config = SettingsConfigDict(env_prefix="TANDEM_", extra="ignore", protected_namespaces=())

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8000, description="Port to listen on; 0 takes a free one.")
    api_key: SecretStr | None = Field(None, description="Bearer token that clients must send (not for /health and /metrics).")
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(64 * MIB, description="Largest request body, in bytes; 413 beyond.")
    drain_seconds: Annotated[float, Field(ge=0)] = Field(30.0, description="On shutdown, how long running requests may go on.")
    log_format: Literal["console", "json"] = Field("console", description="Log lines for people or for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level that is logged.")


class ScalableSettings(ServiceSettings):
    """A stateless service may run as several processes on one port."""

    workers: Annotated[int, Field(ge=0, le=256)] = Field(0, description="Processes that share the port; 0 is one for each core.")

    @property
    def processes(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))


class ModelSettings(ScalableSettings):
    """For services that know the model's text side."""

    model: str = Field("smollm2", description="smollm2 (packaged), a local Hugging Face folder, a GGUF file, or a hub id.")
    served_model_name: str | None = Field(None, description="Name that clients use; by default the value of --model.")
    max_model_len: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Context length in tokens; by default the model's own. Of more than 4194304 no more are used."
    )
    chat_template: str | None = Field(None, description="Jinja file to use instead of the model's own chat template.")
