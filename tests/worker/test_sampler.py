"""The sampler against a plain reference: the same parameters, written the slow way over probabilities."""

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generate_worker.engine import adjustments, noise, sampler
from generate_worker.engine.base import EngineRequest, Generation
from generate_worker.engine.job import Job
from generate_worker.engine.sequence import Sequence
from protocol.sampling import SamplingParams

SIZE = 24


def sequence(
    seed: int = 0, index: int = 0, output: tuple[int, ...] = (), prompt: list[int] | None = None, **params: Any
) -> Sequence:
    request = EngineRequest("r", prompt or [1, 2], SamplingParams(**params), seed, 100, frozenset({0}), frozenset({0}), 0, output)
    return Sequence(Job(Generation(request, lambda generation: None), 0, 0.0), index, "")


def reference(logits: list[float], params: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    """The distribution that one row is drawn from, by the book."""
    row = list(logits)
    for i in range(SIZE):
        if params.allowed_token_ids and i not in params.allowed_token_ids:
            row[i] = -math.inf
    if len(output) < params.min_tokens:
        row[0] = -math.inf
    for token, bias in (params.logit_bias or {}).items():
        row[token] += bias
    for i in range(SIZE):
        if i in prompt or i in output:
            row[i] = row[i] / params.repetition_penalty if row[i] > 0 else row[i] * params.repetition_penalty
        row[i] -= params.frequency_penalty * output.count(i) + params.presence_penalty * (i in output)
    best = max(row)
    weights = [math.exp((value - best) / params.temperature) for value in row]
    weights = [weight if weight >= params.min_p else 0.0 for weight in weights]
    order = sorted(range(SIZE), key=lambda i: -weights[i])
    for i in order[params.top_k :] if params.top_k > 0 else []:
        weights[i] = 0.0
    total, before = sum(weights), 0.0
    for i in order:
        weight = weights[i] / total
        if before >= params.top_p and params.top_p < 1:
            weights[i] = 0.0
        before += weight
    return [weight / sum(weights) for weight in weights]


CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 3},
    {"top_p": 0.6},
    {"top_p": 0.05},
    {"min_p": 0.2},
    {"top_k": 8, "top_p": 0.8, "min_p": 0.05, "temperature": 1.3},
    {"top_k": 1},
    {"repetition_penalty": 1.7, "temperature": 0.9},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"logit_bias": {3: 2.5, 7: -100}},
    {"allowed_token_ids": [2, 5, 9]},
    {"min_tokens": 9},
]


UNTRUNCATED = [case for case in CASES if not case.keys() & {"top_k", "top_p", "min_p"}]


@pytest.mark.parametrize("params", UNTRUNCATED, ids=str)
def test_adjusted_logits_are_those_of_the_book(params: dict[str, Any]) -> None:
    torch.manual_seed(1)
    rows, prompt, output = torch.randn(3, SIZE) * 1.5, [1, 2, 3], (3, 4, 4, 5)
    expected = [reference(row.tolist(), SamplingParams(**params), prompt, list(output)) for row in rows]
    one = sequence(0, 0, output, prompt, **params)
    adjustments.adjust(rows, [one] * 3)
    assert (rows / one.request.params.temperature).softmax(-1).tolist() == [pytest.approx(row, abs=1e-6) for row in expected]


@pytest.mark.parametrize("params", CASES, ids=str)
def test_draws_follow_the_reference_distribution(params: dict[str, Any]) -> None:
    """By a chi-square test, whose seeds are fixed: it passes or fails for good."""
    torch.manual_seed(1)
    logits, prompt, output = torch.randn(SIZE) * 1.5, [1, 2, 3], (3, 4, 4, 5)
    count = 4000
    drawn = sampler.sample(logits.repeat(count, 1), [sequence(seed, 0, output, prompt, **params) for seed in range(count)])
    counts = Counter(one.token_id for one in drawn)
    expected = dict(enumerate(reference(logits.tolist(), SamplingParams(**params), prompt, list(output))))
    assert all(expected[token_id] for token_id in counts)
    # Rare ids are counted together: the statistic wants some five of each.
    common = [token_id for token_id, share in expected.items() if share * count >= 5]
    groups = [([token_id], expected[token_id]) for token_id in common]
    rare = [token_id for token_id in expected if token_id not in common]
    groups += [(rare, sum(expected[token_id] for token_id in rare))] if any(expected[token_id] for token_id in rare) else []
    statistic = sum((sum(counts[one] for one in ids) - share * count) ** 2 / (share * count) for ids, share in groups)
    assert statistic <= chi_square_bound(len(groups) - 1)


def chi_square_bound(freedom: int) -> float:
    """What a statistic exceeds once in ten thousand times (Wilson and Hilferty's approximation)."""
    if not freedom:
        return 1e-9
    ninth = 2 / (9 * freedom)
    return float(freedom * (1 - ninth + 3.719 * math.sqrt(ninth)) ** 3)


@pytest.mark.parametrize("params", CASES, ids=str)
def test_a_row_does_not_depend_on_its_batch(params: dict[str, Any]) -> None:
    torch.manual_seed(2)
    rows = torch.randn(6, SIZE)
    sequences = [sequence(seed=i, index=i % 3, **(params if i % 2 else {"temperature": i / 4})) for i in range(6)]
    together = [one.token_id for one in sampler.sample(rows.clone(), sequences)]
    alone = [sampler.sample(row[None].clone(), [one])[0].token_id for row, one in zip(rows, sequences, strict=True)]
    assert together == alone


def test_a_batch_drawn_at_once_gives_what_rows_drawn_singly_give() -> None:
    torch.manual_seed(3)
    rows = torch.randn(len(CASES), SIZE)
    sequences = [sequence(seed=i, **params) for i, params in enumerate(CASES)]
    device = rows.device
    at_once = sampler.draw(rows, sampler.Draws.of(sequences, SIZE, device)).tolist()
    assert at_once == [
        int(sampler.draw(row[None], sampler.Draws.of([one], SIZE, device))) for row, one in zip(rows, sequences, strict=True)
    ]


def test_a_nucleus_wider_than_the_window_takes_the_whole_vocabulary() -> None:
    size = 5000
    logits = torch.linspace(0, 0.01, size)[None]
    draws = sampler.Draws.of([sequence(top_p=0.9)], size, logits.device)
    kept = int((logits >= sampler.cutoff(logits, draws)).sum())
    assert kept == pytest.approx(0.9 * size, rel=0.01)


def test_greedy_is_the_best_logit_and_costs_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "gumbel", None)
    rows = torch.randn(3, SIZE)
    got = sampler.sample(rows.clone(), [sequence(temperature=0, top_p=0.5), sequence(temperature=1e-6), sequence(temperature=0)])
    assert [one.token_id for one in got] == rows.argmax(-1).tolist()


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 127), st.integers(0, 10**6))
def test_noise_depends_on_its_key_and_token_id_alone(seed: int, choice: int, position: int) -> None:
    key = torch.tensor([[noise.stream_key(seed, choice, position)]])
    whole = noise.gumbel(key, torch.arange(1000))
    some = torch.tensor([[999, 3, 500]])
    assert torch.equal(noise.gumbel(key, some)[0], whole[0, some[0]])
    assert bool(torch.isfinite(whole).all())
    for other in ((seed ^ 1, choice, position), (seed, choice + 1, position), (seed, choice, position + 1)):
        assert not torch.equal(noise.gumbel(torch.tensor([[noise.stream_key(*other)]]), torch.arange(1000)), whole)


def test_noise_is_gumbel_and_uncorrelated_between_neighbouring_keys() -> None:
    keys = torch.tensor([[noise.stream_key(1, 0, position)] for position in range(100)])
    values = noise.gumbel(keys, torch.arange(2000)).double()
    uniform = (-(-values).exp()).exp()
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.003)
    assert uniform.var().item() == pytest.approx(1 / 12, abs=0.002)
    centred = uniform - 0.5
    assert abs((centred[1:] * centred[:-1]).mean().item()) < 0.001
    assert abs((centred[:, 1:] * centred[:, :-1]).mean().item()) < 0.001


def test_banned_sequences_only_bite_after_their_beginning() -> None:
    rng = random.Random(0)
    for _ in range(50):
        output = tuple(rng.randrange(3) for _ in range(rng.randrange(4)))
        rows = torch.zeros(1, SIZE)
        adjustments.adjust(rows, [sequence(output=output, bad_words_token_ids=[[7], [1, 8], [1, 2, 9]])])
        row = rows[0]
        assert row[7] == -math.inf
        assert (row[8] == -math.inf) == (output[-1:] == (1,))
        assert (row[9] == -math.inf) == (output[-2:] == (1, 2))
