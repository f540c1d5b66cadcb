"""One model's text side: tokenizer, chat template, eos ids, context length. No torch and no transformers.

Render and derender load it; the worker, which sees only ids, does not.
"""

from typing import TYPE_CHECKING, Any

from model_profile.chat_template import ChatTemplate
from model_profile.errors import BrokenModel, ModelNotFound, ProfileError
from model_profile.template import TemplateFailed, TemplateInput, TemplateRefused

if TYPE_CHECKING:
    from model_profile.profile import ModelProfile, load

__all__ = [
    "BrokenModel",
    "ChatTemplate",
    "ModelNotFound",
    "ModelProfile",
    "ProfileError",
    "TemplateFailed",
    "TemplateInput",
    "TemplateRefused",
    "load",
]


def __getattr__(name: str) -> Any:
    # These want the tokenizer library, and the processes that run templates start faster without it.
    if name in ("ModelProfile", "load"):
        from model_profile import profile

        return getattr(profile, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
