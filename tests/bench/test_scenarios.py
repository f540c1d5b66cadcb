"""Scenarios, schedules and files of requests: the same seed gives the same, in the same order."""

import json
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from tandem.bench.errors import BenchError
from tandem.bench.requests import Sampling, from_lines, from_scenario, read_lines, text, token_ids
from tandem.bench.scenarios import SCENARIOS, shapes
from tandem.bench.schedule import due_times

SAMPLING = Sampling(seed=3, temperature=0.0, ignore_eos=True, max_tokens=9)


@pytest.mark.parametrize("name", SCENARIOS)
def test_shapes_depend_on_the_seed_alone(name: str) -> None:
    one, again, other = (list(islice(shapes(SCENARIOS[name], seed), 100)) for seed in (1, 1, 2))
    assert one == again != other
    kinds = {kind.name: kind for kind in SCENARIOS[name].kinds}
    for shape in one:
        assert kinds[shape.kind].prompt.low <= shape.prompt <= kinds[shape.kind].prompt.high
        assert kinds[shape.kind].output.low <= shape.output <= kinds[shape.kind].output.high


def test_the_mixture_is_three_to_one_in_every_block() -> None:
    made = [shape.kind for shape in islice(shapes(SCENARIOS["mixed"], 5), 80)]
    blocks = [made[start : start + 4] for start in range(0, 80, 4)]
    assert all(Counter(block) == {"short-short": 3, "long-long": 1} for block in blocks)
    assert len({tuple(block) for block in blocks}) > 1


def test_ids_are_those_of_the_shape_and_of_no_other_load() -> None:
    one, again, other = (
        list(islice(from_scenario(SCENARIOS["mixed"], token_ids(1000), SAMPLING, load, nested=True), 20)) for load in "aab"
    )
    assert one == again
    for request, elsewhere, shape in zip(one, other, shapes(SCENARIOS["mixed"], 3), strict=False):
        assert len(request.body["token_ids"]) == len(elsewhere.body["token_ids"]) == shape.prompt
        assert request.body["token_ids"] != elsewhere.body["token_ids"]
        assert all(250 <= token_id < 1000 for token_id in request.body["token_ids"])
        assert request.body["sampling_params"] == {"max_tokens": shape.output, "temperature": 0, "seed": 3, "ignore_eos": True}
        assert request.greedy


def test_text_has_as_many_words_as_tokens_were_asked_for() -> None:
    for request, shape in zip(
        islice(from_scenario(SCENARIOS["short-short"], text, SAMPLING, "c1", nested=False), 5),
        shapes(SCENARIOS["short-short"], 3),
        strict=False,
    ):
        assert len(request.body["messages"][0]["content"].split(" ")) == shape.prompt
        assert request.body["max_tokens"] == shape.output


def test_deterministic_arrivals_are_even_to_the_digit() -> None:
    assert list(islice(due_times(10, "deterministic", 0), 5)) == [0, 0.1, 0.2, 3 * 0.1, 0.4]


def test_bursts_keep_the_rate() -> None:
    assert list(islice(due_times(8, "deterministic", 0, burst=4), 9)) == [0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1.0]


def test_poisson_arrivals_are_seeded_and_have_the_rate_in_the_mean() -> None:
    one, again, other = (list(islice(due_times(50, "poisson", seed), 5001)) for seed in (1, 1, 2))
    assert one == again != other
    pauses = [later - earlier for earlier, later in pairwise(one)]
    assert min(pauses) >= 0
    assert 5000 / one[-1] == pytest.approx(50, rel=0.05)
    # Of an exponential distribution: as wide as its mean.
    assert sum(pause > 1 / 50 for pause in pauses) / 5000 == pytest.approx(0.368, abs=0.03)


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_lines_come_in_turn_and_keep_what_they_say(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "hi", "tools": []}, "", {"messages": [{"role": "user", "content": "x"}], "temperature": 1})
    made = list(islice(from_lines(read_lines(path, for_worker=False), SAMPLING, nested=False), 3))
    common = {"max_tokens": 9, "seed": 3, "ignore_eos": True}
    assert made[0].body == {**common, "temperature": 0, "messages": [{"role": "user", "content": "hi"}], "tools": []}
    assert made[1].body == {**common, "temperature": 1, "messages": [{"role": "user", "content": "x"}]}
    assert made[2].body == made[0].body
    assert [request.greedy for request in made] == [True, False, True]
    assert [request.index for request in made] == [0, 1, 2]


def test_a_workers_lines_have_sampling_params_however_they_are_written(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"token_ids": [5], "max_tokens": 2, "cache_salt": "s"},
        {"token_ids": [6], "sampling_params": {"top_k": 1, "seed": 8}},
    )
    one, two = islice(from_lines(read_lines(path, for_worker=True), SAMPLING, nested=True), 2)
    params = {"max_tokens": 9, "temperature": 0, "seed": 3, "ignore_eos": True}
    assert one.body == {"token_ids": [5], "cache_salt": "s", "sampling_params": {**params, "max_tokens": 2}}
    assert two.body == {"token_ids": [6], "sampling_params": {**params, "top_k": 1, "seed": 8}}


@pytest.mark.parametrize(
    ("line", "for_worker", "words"),
    [
        ("{", False, ["line 2", "no JSON"]),
        ([1], False, ["line 2", "no JSON object"]),
        ({}, False, ["line 2", "token_ids, messages and prompt"]),
        ({"prompt": "a", "token_ids": [1]}, False, ["line 2", "one of"]),
        ({"prompt": "a"}, True, ["line 2", "worker", "token_ids"]),
        ({"token_ids": [1]}, False, ["line 2", "--target worker"]),
        ({"token_ids": ["a"]}, True, ["line 2", "token_ids.0"]),
        ({"prompt": "a", "n": 2}, False, ["line 2", "n"]),
    ],
)
def test_a_line_that_cannot_be_asked_is_named(tmp_path: Path, line: Any, for_worker: bool, words: list[str]) -> None:
    path = written(tmp_path, {"token_ids": [1]} if for_worker else {"prompt": "a"}, line)
    with pytest.raises(BenchError) as caught:
        read_lines(path, for_worker=for_worker)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot be read"):
        read_lines(tmp_path / "nothing", for_worker=True)
    with pytest.raises(BenchError, match="no lines"):
        read_lines(written(tmp_path, "", " "), for_worker=True)
