"""What the replay engine plays: recorded or made-up ids, how fast, and what is to go wrong on the way."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, ValidationError, model_validator

from generate_worker.engine.base import EngineRequest
from model_profile.errors import ProfileError
from protocol.base import Closed, Natural, Positive, TokenId
from protocol.generate import FinishReason

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Failure(Closed):
    """What goes wrong when a choice has `after` ids: once, so a request that is resumed there goes on.

    `stall`: nothing comes for `seconds` (without it: never more). `drop`: the connection is cut. `error`: an `error` event with
    this `message`. The others break the protocol itself, for whoever tests a client: `missing`: the next id's event is left out;
    `duplicate`: it comes twice; `late`: it comes again behind the end.
    """

    kind: Literal["stall", "drop", "error", "missing", "duplicate", "late"]
    after: Natural = 0
    seconds: Seconds | None = None
    message: str = "this failure was asked for by the replay script"


class ScriptLine(Closed):
    """One output: `token_ids`, or `tokens` made-up ones. `finish_reason` says how it ends where no stop id of the request has ended
    it before: `stop` makes its last id the stopping token, `length` and `abort` end after it. The pace is the engine's where a line
    has none of its own."""

    token_ids: list[TokenId] | None = None
    tokens: Natural | None = None
    finish_reason: Literal["stop", "length", "abort"] = "length"
    tokens_per_second: Seconds | None = None
    chunk_size: Positive | None = None
    fail: Failure | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "ScriptLine":
        if (self.token_ids is None) == (self.tokens is None):
            raise ValueError("give either token_ids or tokens")
        return self


@dataclass(frozen=True, slots=True)
class Pace:
    """`tokens_per_second` of one choice (0: as fast as it goes), `chunk` ids at a time."""

    tokens_per_second: float = 0.0
    chunk: int = 1

    def due(self, begun: float, tokens: int) -> float:
        return begun + tokens / self.tokens_per_second if self.tokens_per_second else 0.0

    def of(self, line: ScriptLine) -> "Pace":
        """A line's own."""
        rate = self.tokens_per_second if line.tokens_per_second is None else line.tokens_per_second
        return Pace(rate, line.chunk_size or self.chunk)


@dataclass(frozen=True, slots=True)
class Output:
    """What is played for one choice: ids from its resumed length on, then the end. `stop_at` makes the id at that index stop it."""

    token_ids: Iterator[int]
    pace: Pace
    then: FinishReason = FinishReason.LENGTH
    stop_at: int | None = None
    failure: Failure | None = None


class Source(Protocol):
    """Where the ids come from."""

    def output(self, request: EngineRequest, choice: int) -> Output: ...


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Endless ids below `vocab_size` that depend on seed, choice and position alone, and are never among `avoided`."""

    vocab_size: int
    pace: Pace = field(default_factory=Pace)
    avoided: frozenset[int] = frozenset()

    def output(self, request: EngineRequest, choice: int) -> Output:
        return Output(self.ids(request, choice), self.pace)

    def ids(self, request: EngineRequest, choice: int) -> Iterator[int]:
        avoided = self.avoided | request.stop_ids
        for place in itertools.count(len(request.resumed_ids)):
            draws = (_scramble(request.seed, choice, place, attempt) % self.vocab_size for attempt in itertools.count())
            yield next((token_id for token_id in itertools.islice(draws, 64) if token_id not in avoided), 0)


@dataclass(slots=True)
class Script:
    """Lines in turn, one a choice, from the first again after the last. A resumed request goes on in the line it began with, where
    that is written out; made-up ids are the same in any line."""

    lines: list[ScriptLine]
    made_up: Synthetic
    _turn: int = 0

    @classmethod
    def read(cls, path: Path, made_up: Synthetic) -> "Script":
        """From a file of JSON lines. Raises `ProfileError`."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"the replay script {path} cannot be read: {error}") from error
        lines = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                try:
                    lines.append(ScriptLine.model_validate(json.loads(line)))
                except (ValidationError, json.JSONDecodeError) as error:
                    reason = str(error).replace("\n", " ")
                    raise ProfileError(f"the replay script {path}, line {number}, is no line to play: {reason}") from error
        if not lines:
            raise ProfileError(f"the replay script {path} has no lines")
        return cls(lines, made_up)

    def output(self, request: EngineRequest, choice: int) -> Output:
        done = list(request.resumed_ids)
        begun = (line for line in self.lines if done and line.token_ids is not None and line.token_ids[: len(done)] == done)
        line = next(begun, None)
        if line is None:
            line = self.lines[self._turn % len(self.lines)]
            self._turn += 1
        if line.token_ids is not None:
            length, ids = len(line.token_ids), iter(line.token_ids[len(done) :])
        else:
            length = line.tokens or 0
            ids = itertools.islice(self.made_up.ids(request, choice), max(0, length - len(done)))
        over = line.fail is None or (bool(done) and len(done) >= line.fail.after)
        return Output(
            ids,
            self.made_up.pace.of(line),
            FinishReason(line.finish_reason),
            length - 1 if line.finish_reason == "stop" else None,
            None if over else line.fail,
        )


def _scramble(*numbers: int) -> int:
    x = 0
    for number in numbers:
        x = (x ^ (number & (2**64 - 1))) * 0x9E3779B97F4A7C15 % 2**64
        x ^= x >> 29
    return x
