"""What every function of this service renders with: the model's text side and the server's rules."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_profile import ModelProfile
from render_service.control_tokens import ControlTokens
from service_kit.models import ServedModel

if TYPE_CHECKING:
    from render_service.harmony import Harmony


@dataclass(frozen=True)
class Renderer:
    """`max_logprobs` is the most that a request may ask for. `trust_templates`: requests may bring chat templates. `control_tokens`
    is None where clients may write them. `harmony` is there for a model that is prompted in harmony, not by a template."""

    profile: ModelProfile
    model: ServedModel
    max_logprobs: int
    trust_templates: bool
    control_tokens: ControlTokens | None = None
    harmony: "Harmony | None" = None
