"""What a model needs done once, done ahead: fetching its files, and converting its weights where they are in a GGUF file."""

from importlib.util import find_spec

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from model_profile import sources
from model_profile.errors import ProfileError
from service_kit.settings import ModelSettings
from tandem.options import fail


class PrepareSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TANDEM_", extra="ignore", protected_namespaces=())

    model: str = Field("smollm2", description=ModelSettings.model_fields["model"].description)
    weights: bool = Field(True, description="Also what the worker needs; render and derender do without.")


def prepare(settings: PrepareSettings) -> None:
    """Fills the cache. Ends the process with one line and exit code 2 where the model cannot be had."""
    try:
        sources.resolve(settings.model)
        if settings.weights:
            need_torch()
            from generate_worker import weights

            weights.weights_folder(settings.model)
    except ProfileError as error:
        fail(str(error))


def need_torch() -> None:
    """Ends the process with one line where the libraries of the worker are not installed."""
    missing = [name for name in ("torch", "transformers", "accelerate", "safetensors") if find_spec(name) is None]
    if missing:
        fail(f"the worker needs {', '.join(missing)}, not installed here; `pip install 'tandem-serving[worker]'` brings everything")
