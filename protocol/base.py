"""What every wire type is built from: open and closed models, and the bounded scalars they share."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, Strict
from pydantic_core import CoreSchema

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
MAX_TOKEN_ID = 2**31 - 1

TokenId = Annotated[int, Strict(), Field(ge=0, le=MAX_TOKEN_ID)]
"""A token id: never negative, and small enough for the int32 tensors that engines keep. Text such as `"5"` is no id."""

Seed = Annotated[int, Strict(), Field(ge=INT64_MIN, le=INT64_MAX)]
MAX_REQUEST_ID = 256
RequestId = Annotated[str, Field(min_length=1, max_length=MAX_REQUEST_ID, pattern=r"^[\x21-\x7e]+$")]
"""Printable ASCII without spaces: it travels in headers and in log lines."""


Integer = Annotated[int, Field(ge=INT64_MIN, le=INT64_MAX)]
Natural = Annotated[int, Field(ge=0, le=2**53)]
Positive = Annotated[int, Field(ge=1, le=2**53)]
"""Every integer of the wire is bounded: JSON allows thousands of digits, which sums and messages about them do not survive. Counts
end where JavaScript's numbers stop being exact."""

T = TypeVar("T")
Maybe = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the JSON when it is None (where OpenAI's answers say null, the plain `T | None` is used)."""


_MANY = ("list", "dict", "tuple", "set", "frozenset")


def _fail_fast(schema: Any) -> None:
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        if isinstance(part, dict) and part.get("type") in _MANY:
            part["fail_fast"] = True
        if isinstance(part, dict | list):
            _fail_fast(part)


class Wire(BaseModel):
    """An open type: unknown fields are ignored, as clients of OpenAI-compatible servers expect."""

    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="null")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic makes it, but what is wrong in a list or a mapping is told once: a body of a few megabytes has room for a
        million errors, which take gigabytes and minutes to tell."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    def wire(self) -> bytes:
        """The JSON that travels, UTF-8, fields in declaration order."""
        return self.model_dump_json().encode()


class Extensible(Wire):
    """A type whose unknown fields are kept: what chat templates read is listed by no API."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="null")


class Closed(Wire):
    """A closed type: an unknown field is an error. For what Tandem itself produces, and for state that must not be misread."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="null")


JsonObject = dict[str, Any]
