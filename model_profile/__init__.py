"""One model's text side: tokenizer, chat template, eos ids, context length. No torch and no transformers.

Render and derender load it; the worker, which sees only ids, does not.
"""

from model_profile.chat_template import ChatTemplate, TemplateInput
from model_profile.errors import BrokenModel, ModelNotFound, ProfileError
from model_profile.profile import ModelProfile, load
from model_profile.template_environment import TemplateFailed, TemplateRefused

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
