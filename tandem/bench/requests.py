"""What is sent: the bodies of requests, from a scenario or from a file, seeded.

A body has what a request is about (ids or messages, how long, how sampled); the model and how to stream are the target's to add.
"""

import hashlib
import itertools
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from protocol.base import Extensible, JsonObject, TokenId
from protocol.errors import field_error, invalid
from tandem.bench.errors import BenchError
from tandem.bench.scenarios import Scenario, Shape, shapes
from tandem.bench.words import WORDS

WARM_UP = "warm-up"
FILE = "file"


@dataclass(frozen=True, slots=True)
class Request:
    """`index` counts from 0 within its load; `kind` names the part of the scenario, or the file."""

    index: int
    kind: str
    body: JsonObject

    @property
    def sha256(self) -> str:
        """Of the body, however its fields are ordered: outputs can be compared where requests are the same."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()

    @property
    def greedy(self) -> bool:
        sampling: JsonObject = self.body.get("sampling_params", self.body)
        return sampling.get("temperature") == 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """What every request asks for unless a line of a file says otherwise."""

    seed: int
    temperature: float
    ignore_eos: bool
    max_tokens: int

    def fields(self, output: int | None = None) -> JsonObject:
        wanted: JsonObject = {"max_tokens": output or self.max_tokens, "temperature": self.temperature, "seed": self.seed}
        return {**wanted, "ignore_eos": True} if self.ignore_eos else wanted


Content = Callable[[Shape, random.Random], JsonObject]
"""The body's part that is the prompt."""


def token_ids(vocab_size: int) -> Content:
    """Ids drawn from the upper three quarters below `vocab_size`: at the lower end lie tokens that mean something special."""

    low = vocab_size // 4

    def content(shape: Shape, chance: random.Random) -> JsonObject:
        # Many at once: requests are made while the load runs. (That some ids are a little likelier than others does no harm.)
        drawn = struct.unpack(f"<{shape.prompt}I", chance.randbytes(4 * shape.prompt))
        return {"token_ids": [low + number % (vocab_size - low) for number in drawn]}

    return content


def text(shape: Shape, chance: random.Random) -> JsonObject:
    """About as many tokens as asked for: common words, which most vocabularies have whole. The server tells what it came to."""
    return {"messages": [{"role": "user", "content": " ".join(chance.choices(WORDS, k=shape.prompt))}]}


def from_scenario(scenario: Scenario, content: Content, sampling: Sampling, load: str, *, nested: bool) -> Iterator[Request]:
    """Without end. Shapes depend on the seed alone, contents on the `load` too. `nested`: sampling fields go into
    `sampling_params`, as a worker wants them."""
    for index, shape in enumerate(shapes(scenario, sampling.seed)):
        chance = random.Random(f"tandem bench content {sampling.seed} {load} {index}")
        fields = sampling.fields(shape.output)
        yield Request(index, shape.kind, {**content(shape, chance), **({"sampling_params": fields} if nested else fields)})


class Line(Extensible):
    """A line of a file: `token_ids` for a worker, `messages` or a `prompt` (one user message) for the others; any further field
    goes into the request's body."""

    token_ids: Annotated[list[TokenId], Field(min_length=1)] | None = None
    messages: Annotated[list[JsonObject], Field(min_length=1)] | None = None
    prompt: str | None = None
    sampling_params: JsonObject | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> "Line":
        if sum(value is not None for value in (self.token_ids, self.messages, self.prompt)) != 1:
            raise field_error("prompt", "give one of token_ids, messages and prompt")
        if (self.sampling_params or {}).get("n", 1) != 1:
            raise field_error("sampling_params", "n must be 1: what is measured is one output a request")
        return self


def read_lines(path: Path, *, for_worker: bool) -> list[Line]:
    """Raises `BenchError` for a file that cannot be read, or a line that the target cannot be asked."""
    try:
        written = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--requests-file {path} cannot be read: {error}") from error
    lines = []
    for number, one in enumerate(written, start=1):
        if one.strip():
            where = f"--requests-file {path}, line {number}"
            line = _line(where, one)
            if for_worker and line.token_ids is None:
                raise BenchError(f"{where}: a worker is asked with token_ids; it knows no text")
            if not for_worker and line.token_ids is not None:
                raise BenchError(f"{where}: token_ids are for --target worker; this target takes messages or a prompt")
            lines.append(line)
    if not lines:
        raise BenchError(f"--requests-file {path} has no lines")
    return lines


def from_lines(lines: Sequence[Line], sampling: Sampling, *, nested: bool) -> Iterator[Request]:
    """The lines in turn, from the first again after the last."""
    for index, line in enumerate(itertools.cycle(lines)):
        own: dict[str, Any] = line.model_dump(exclude_none=True)
        if line.prompt is not None:
            own["messages"] = [{"role": "user", "content": own.pop("prompt")}]
        fields = sampling.fields()
        if nested:
            params = own.pop("sampling_params", {})
            named = {name: own.pop(name) for name in list(own) if name in fields}
            yield Request(index, FILE, {**own, "sampling_params": {**fields, **named, **params}})
        else:
            if "max_completion_tokens" in own:
                del fields["max_tokens"]
            yield Request(index, FILE, {**fields, **own})


def _line(where: str, written: str) -> Line:
    try:
        value = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{where} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BenchError(f"{where} is no JSON object")
    try:
        return Line.model_validate(value)
    except ValidationError as error:
        raise BenchError(f"{where}: {invalid(error).message}") from error
