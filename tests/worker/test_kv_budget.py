"""How much memory the cache takes where nobody says, and what more of it would be of no use."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generate_worker.engine import kv_budget
from generate_worker.engine.block_pool import BLOCK, blocks_for

GIB = 2**30


@pytest.mark.parametrize(("free", "taken"), [(4 * GIB, GIB), (64 * GIB, 4 * GIB), (0, 0)])
def test_a_quarter_of_what_is_free_and_four_gib_at_most(free: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_budget, "_available", lambda: free)
    assert kv_budget.budget(torch.device("cpu")) == taken


def test_what_this_machine_has_free_is_found_out() -> None:
    assert 0 < kv_budget.budget(torch.device("cpu")) <= 4 * GIB


@given(st.integers(0, 2**40), st.integers(1, 2**20), st.integers(1, 2**17), st.integers(1, 512))
def test_blocks_fit_the_memory_and_are_of_use(memory: int, per_token: int, longest: int, seqs: int) -> None:
    count = kv_budget.blocks(memory, per_token, longest=longest, seqs=seqs)
    useful = blocks_for(longest) * seqs
    assert count * BLOCK * per_token <= memory
    assert count <= useful
    assert count == useful or (count + 1) * BLOCK * per_token > memory
