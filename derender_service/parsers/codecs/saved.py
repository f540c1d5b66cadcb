"""Fields that are a state: they come back from a client, so nothing unknown is taken."""

from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter


class Saved:
    """Base of dataclasses that are saved between two chunks."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def dump(self) -> dict[str, Any]:
        """As JSON, without the fields that have their defaults."""
        kind: Any = type(self)
        found: dict[str, Any] = _adapter(kind).serializer.to_python(self, mode="json", exclude_defaults=True)
        return found


def load(kind: Any, value: Any) -> Any:
    """One of this kind, of what was dumped. Raises pydantic's `ValidationError`."""
    return _adapter(kind).validator.validate_python(value)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
