"""Unions whose members are told apart by one field: errors name fields and no member, and what is no member by its own name."""

from dataclasses import dataclass
from typing import Any

from pydantic import Discriminator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from protocol.base import Wire
from protocol.errors import field_error


@dataclass(frozen=True)
class ToldBy:
    """Annotates a union whose members have `Tag("<field>:<value>")`, one for each value of `known`. What has no value there is
    taken for a `default`. (So spelled, the tags stay out of error paths.)"""

    field: str
    known: tuple[str, ...]
    default: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        tagged = Discriminator(lambda value: f"{self.field}:{self._kind(value)}")
        return no_info_before_validator_function(self._check, tagged.__get_pydantic_core_schema__(source, handler))

    def _kind(self, value: Any) -> Any:
        kind = value.get(self.field) if isinstance(value, dict) else getattr(value, self.field, None)
        return self.default if kind is None else kind

    def _check(self, value: Any) -> Any:
        if not isinstance(value, (dict, Wire)):
            raise PydanticCustomError("object", "must be an object")
        kind = self._kind(value)
        if kind in self.known:
            return value
        known = ", ".join(self.known)
        if not isinstance(kind, str):
            raise field_error(self.field, f"must be one of {known}")
        raise field_error(self.field, f"{kind[:60]!r} is not supported here, only {known}")
