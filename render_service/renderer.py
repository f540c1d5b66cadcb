"""What every function of this service renders with: the model's text side and the server's rules."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model_profile import ModelProfile
from model_profile.formats import Formats
from render_service.control_tokens import ControlTokens
from render_service.piece_cache import PieceCache
from service_kit.models import ServedModel

if TYPE_CHECKING:
    from render_service.harmony import Harmony


@dataclass(frozen=True)
class Renderer:
    """`max_logprobs` is the most that a request may ask for. `trust_templates`: requests may bring chat templates.
    `guards_control_tokens`: clients cannot write them. `harmony` is there for a model that is prompted in harmony, not by a
    template.
    `formats`: those in which the model is seen to reason and to call.
    """

    profile: ModelProfile
    model: ServedModel
    max_logprobs: int
    trust_templates: bool
    control_tokens: ControlTokens
    pieces: PieceCache
    guards_control_tokens: bool = True
    harmony: "Harmony | None" = None
    formats: Formats = field(default_factory=Formats)
