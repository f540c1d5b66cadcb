"""What every function of this service renders with: the model's text side and the server's rules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from model_profile import ModelProfile, TemplateInput
from model_profile.formats import Formats
from model_profile.provenance import Traced
from model_profile.template_habits import TemplateHabits
from render_service.control_tokens import ControlTokens
from render_service.tokenizer_cache import TokenizerCache
from service_kit.models import ServedModel

if TYPE_CHECKING:
    from render_service.harmony import Harmony


class Template(Protocol):
    """A chat template, wherever it runs. Every method raises `TemplateFailed`, and `HostFailed` where a process failed it."""

    @property
    def literals(self) -> frozenset[str] | None:
        """The texts that it can write beside what it is given; None where that is not known."""

    def habits(self, *, with_tools: bool = False) -> TemplateHabits:
        """What it expects of its input."""

    def write(self, given: TemplateInput) -> str:
        """The prompt's text."""

    def trace(self, given: TemplateInput) -> Traced:
        """The same text, each character with its source. Takes several times as long."""


@dataclass(frozen=True)
class Renderer:
    """`max_logprobs` is the most that a request may ask for. `guest_template` makes a template of one that a request brings.
    `guards_control_tokens`: clients cannot write them. `harmony` is there for a model that is prompted in harmony, not by a
    template.
    `formats`: those in which the model is seen to reason and to call.
    """

    profile: ModelProfile
    model: ServedModel
    max_logprobs: int
    guest_template: Callable[[str], Template]
    control_tokens: ControlTokens
    tokenizer_cache: TokenizerCache
    guards_control_tokens: bool = True
    harmony: "Harmony | None" = None
    formats: Formats = field(default_factory=Formats)
