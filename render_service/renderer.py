"""What every function of this service renders with: the model's text side and the server's rules."""

from dataclasses import dataclass

from model_profile import ModelProfile
from service_kit.models import ServedModel


@dataclass(frozen=True)
class Renderer:
    """`max_logprobs` is the most that a request may ask for. `trust_templates`: requests may bring chat templates."""

    profile: ModelProfile
    model: ServedModel
    max_logprobs: int
    trust_templates: bool
