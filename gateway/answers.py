"""What other services answered, read with care: a service behind the gateway may be another's, of another version, or broken.

What is read and written may be as long as a prompt: see `service_kit.offload.by_length`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from protocol.base import Extensible, Natural, TokenId
from protocol.errors import ErrorInfo, RelayedError, TandemError, UpstreamError, invalid
from protocol.generate import NOT_THE_WORKERS

JsonObject = dict[str, Any]

_OF_UPSTREAM = ("generate_", "stream_state", "profile")
"""Fields of a derender request that are not the client's doing."""


class _Params(Extensible):
    n: Natural | None = None


class _Rendered(Extensible):
    request_id: str
    token_ids: list[TokenId] = Field(min_length=1)
    sampling_params: _Params


class _Generated(Extensible):
    request_id: str
    choices: list[JsonObject]


class _Choice(Extensible):
    index: Natural
    finish_reason: str | None = None


class _CallFunction(Extensible):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Extensible):
    index: Natural
    id: str | None = None
    function: _CallFunction | None = None


class _Delta(Extensible):
    tool_calls: list[_CallDelta] | None = None


class _ChunkChoice(_Choice):
    """What is put together where the client does not stream."""

    delta: _Delta | None = None
    text: str | None = None
    logprobs: dict[str, list[Any] | None] | None = None
    token_ids: list[TokenId] | None = None


class _Chunk(Extensible):
    choices: list[_ChunkChoice]


class _State(Extensible):
    """What the gateway reads of a state; all of it goes back as it came."""

    token_count: Natural = 0
    reasoning_tokens: Natural = 0


class _Derendered(Extensible):
    chunk: _Chunk
    stream_state: _State


class _Answer(Extensible):
    choices: list[_Choice]


_RENDERED: TypeAdapter[Any] = TypeAdapter(_Rendered)
_RENDERED_LIST: TypeAdapter[Any] = TypeAdapter(list[_Rendered])
_GENERATED: TypeAdapter[Any] = TypeAdapter(_Generated)
_DERENDERED: TypeAdapter[Any] = TypeAdapter(_Derendered)
_ANSWER: TypeAdapter[Any] = TypeAdapter(_Answer)


@dataclass(frozen=True)
class Rendered:
    """One of render's generate requests, as the worker is to have it. `size`: bytes of JSON, about: what it takes to write."""

    request: JsonObject
    size: int

    @property
    def id(self) -> str:
        request_id: str = self.request["request_id"]
        return request_id

    @property
    def token_ids(self) -> list[int]:
        ids: list[int] = self.request["token_ids"]
        return ids

    @property
    def n(self) -> int:
        return self.request["sampling_params"].get("n") or 1


def rendered(body: bytes, *, several: bool) -> list[Rendered]:
    """Render's generate requests, at least one. Raises `UpstreamError` for anything else, as all here do."""
    value = _read("render", body, _RENDERED_LIST if several else _RENDERED)
    requests: list[JsonObject] = value if several else [value]
    if not requests:
        raise UpstreamError("the render service answered no generate request")
    own = [{name: value for name, value in request.items() if name not in NOT_THE_WORKERS} for request in requests]
    return [Rendered(request, len(body) // len(own) + 8 * len(request["token_ids"])) for request in own]


def generated(body: bytes) -> JsonObject:
    """A worker's whole answer."""
    answer: JsonObject = _read("worker", body, _GENERATED)
    return answer


def derendered_chunk(body: bytes) -> tuple[JsonObject, JsonObject]:
    """Derender's chunk and state."""
    answer = _read("derender", body, _DERENDERED)
    return answer["chunk"], answer["stream_state"]


def derendered(body: bytes) -> JsonObject:
    """Derender's whole answer."""
    answer: JsonObject = _read("derender", body, _ANSWER)
    return answer


def read_json(kind: str, text: bytes | str) -> JsonObject:
    """A JSON object."""
    value = _loaded(kind, text)
    if not isinstance(value, dict):
        raise UpstreamError(f"the {kind} service sent something that is no object: {text[:100]!r}")
    return value


def failure(info: ErrorInfo, headers: Mapping[str, str] | None = None) -> TandemError:
    """An error that a service sent in a stream, to be raised: with its own status where it tells one, else as a 502."""
    status = info.code if isinstance(info.code, int) and 400 <= info.code < 600 else 502
    retry = {"Retry-After": "1"} if status == 503 else {}
    return RelayedError(status, info, {**retry, **(headers or {})})


def blamed(error: RelayedError) -> TandemError:
    """Derender's refusal of something that the worker made is no fault of the client's."""
    if error.status == 400 and (error.param or "").startswith(_OF_UPSTREAM):
        return UpstreamError(f"the worker's answer cannot be read: {error.message}")
    return error


def _read(kind: str, body: bytes, shape: TypeAdapter[Any]) -> Any:
    value = _loaded(kind, body)
    try:
        shape.validate_python(value)
    except ValidationError as error:
        raise UpstreamError(f"the {kind} service answered something else than expected: {invalid(error).message}") from error
    return value


def _loaded(kind: str, text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"the {kind} service sent something that is not JSON: {text[:100]!r}") from error


def written(value: JsonObject) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
