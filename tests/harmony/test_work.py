"""Work per id does not grow with the output: headers are read once, and by their few ids; bodies not at all."""

import json
from typing import Any

import pytest

from derender_service.parsers.harmony import header as module
from derender_service.parsers.harmony.header import Headers
from tests.harmony.kit import NAME, encoding, grammars, ids_of, read, spelled
from tests.parsers.kit import tokenizer


class Counted:
    """The tokenizer, counting the ids that it is asked to decode."""

    def __init__(self) -> None:
        self.own, self.decoded = tokenizer(NAME), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def decode(self, ids: list[int], **options: Any) -> str:
        self.decoded += len(ids)
        return self.own.decode(ids, **options)


def test_a_header_is_read_once_and_by_its_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    headers = Headers(counted, encoding())  # type: ignore[arg-type]
    region = grammars()["auto"].regions["header"]
    monkeypatch.setitem(region.__dict__, "headers", headers)
    long = spelled("A long thought. ") * 500
    message = [*ids_of("<|channel|>analysis<|message|>"), *long, *ids_of("<|end|><|start|>assistant")]
    found = read([[token_id] for token_id in message * 3])
    assert len(found.answer.reasoning) > 20_000
    # The first header begins in the prompt, the others are alike; the last has no end but the output's.
    assert headers.read.cache_info().misses == 2
    assert counted.decoded < 20
    assert found.largest < 200


def test_the_state_of_a_body_does_not_grow() -> None:
    body = json.dumps({"text": "word " * 3_000})
    for begin in ("<|channel|>final<|message|>", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"):
        ids = [*ids_of(begin), *spelled(body)]
        assert read([ids[at : at + 5] for at in range(0, len(ids), 5)]).largest < 300


def test_reading_a_header_of_any_ids_never_raises() -> None:
    headers = Headers(tokenizer(NAME), encoding())
    every = [0, 199_997, *range(199_998, 200_019), 200_019, 201_087, 2**31, 160, 234, *ids_of(" to=python<|channel|>final")]
    for first in every:
        for second in every:
            for ended in ("message", "marker", "output"):
                assert isinstance(headers.read((first, second), ended), module.Header)
