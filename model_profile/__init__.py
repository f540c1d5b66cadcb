"""One model's text side: tokenizer, chat template, eos ids, context length. No torch and no transformers.

Render and derender load it; the worker, which sees only ids, does not.
"""

from model_profile.chat_template import ChatTemplate, TemplateFailed, TemplateRefused
from model_profile.errors import BrokenModel, ModelNotFound, ProfileError
from model_profile.profile import ModelProfile, load

__all__ = [
    "BrokenModel",
    "ChatTemplate",
    "ModelNotFound",
    "ModelProfile",
    "ProfileError",
    "TemplateFailed",
    "TemplateRefused",
    "load",
]
