"""Fields that are a state: they come back from a client, so nothing unknown is taken."""

from pydantic import ConfigDict


class Saved:
    """Base of dataclasses that are saved between two chunks."""

    __pydantic_config__ = ConfigDict(extra="forbid")
