"""Ways in which a model cannot be used. Every message says what is wrong, where, and what to do about it."""


class ProfileError(Exception):
    """Base: the model named by `--model` cannot be loaded."""


class ModelNotFound(ProfileError):
    """Nothing by that name is here, or it could not be fetched."""


class BrokenModel(ProfileError):
    """The model is here, but a file of it is missing, damaged, or of a kind that is not read."""
