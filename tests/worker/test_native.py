"""The CPU's kernels: what they compute is what transformers computes, in whatever sizes; and what becomes of it without them."""

import math
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from generate_worker.app import create_app
from generate_worker.engine.block_pool import BLOCK, blocks_for
from generate_worker.engine.model_runner import ModelRunner
from generate_worker.engine.native.network import NativeNetwork, serves
from generate_worker.engine.network import Span
from model_profile.errors import ProfileError
from tests.worker import kit

LENGTH = 300

sizes = st.fixed_dictionaries(
    {
        "intermediate_size": st.sampled_from([8, 33, 300]),
        "vocab_size": st.sampled_from([50, 64, 513]),
        "num_hidden_layers": st.sampled_from([1, 3]),
        "head_dim": st.sampled_from([16, 64, 80]),
        "num_key_value_heads": st.sampled_from([1, 2, 3]),
        "groups": st.sampled_from([1, 2, 3, 7, 60]),
    }
)


def made(kind: Any, sizes: dict[str, Any], dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    heads = sizes["num_key_value_heads"] * sizes["groups"]
    config = kind(
        **{name: value for name, value in sizes.items() if name != "groups"},
        hidden_size=math.lcm(heads, 16),
        num_attention_heads=heads,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=float(parameter.ndim == 1), std=0.15)
    return model.to(dtype)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([LlamaConfig, Qwen2Config, Qwen3Config]),
    sizes=sizes,
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    threads=st.sampled_from([1, 2, 5]),
    length=st.sampled_from([1, 2, 15, 16, 17, 128, 129, LENGTH]),
    cuts=st.lists(st.integers(1, LENGTH - 1), max_size=5),
    seed=st.integers(0, 1000),
)
def test_logits_are_those_of_transformers_in_any_parts_to_the_bit(
    kind: Any, sizes: dict[str, Any], dtype: torch.dtype, threads: int, length: int, cuts: list[int], seed: int
) -> None:
    model = made(kind, sizes, dtype)
    # What the stored numbers say, computed in float32, as the kernels do.
    reference = made(kind, sizes, dtype).float()
    assert serves(model)
    ids = torch.randint(0, sizes["vocab_size"], (length,), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        expected = reference(ids[None]).logits[0]
        network = NativeNetwork(model, threads)
        network.allocate(2 * blocks_for(LENGTH))
        # Blocks in no order, and what lies in them already is no number.
        for cache in network._cache:
            cache.fill_(float("nan"))
        table = list(range(2 * blocks_for(LENGTH), 0, -2))
        whole = network.forward([], [Span(table, 0, 0, length)], ids.tolist(), list(range(length)))
        off = (whole - expected) / expected.std().clamp(min=1e-3)
        # (Keys and values are rounded to eight bits where they are stored so.)
        assert off.abs().max() < 1e-3 if dtype is torch.float32 else off.square().mean().sqrt() < 0.05
        for cache in network._cache:
            cache.fill_(float("nan"))
        places = sorted({0, length, *(cut for cut in cuts if cut < length)})
        for start, end in pairwise(places):
            span = Span(table, start, 0, end - start)
            spans = ([span], []) if span.count == 1 else ([], [span])
            logits = network.forward(*spans, ids[start:end].tolist(), list(range(end - start)))
            assert torch.equal(logits, whole[start:end])


def test_company_changes_no_bit() -> None:
    sizes = {"intermediate_size": 33, "vocab_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    model = made(LlamaConfig, {**sizes, "num_key_value_heads": 2, "groups": 3}, torch.float32)
    per = blocks_for(LENGTH)
    with torch.inference_mode():
        network = NativeNetwork(model, 2)
        network.allocate(20 * per)
        tables = [list(range(1 + i * per, 1 + (i + 1) * per)) for i in range(20)]
        starts = [i * 7 for i in range(20)]
        alone = []
        for table, start in zip(tables, starts, strict=True):
            ids = [(start + 5 * place) % 64 for place in range(start + 1)]
            alone.append(network.forward([], [Span(table, 0, 0, start + 1)], ids, [start])[0])
        decodes = [Span(table, start, row, 1) for row, (table, start) in enumerate(zip(tables, starts, strict=True))]
        last = [(start + 5 * start) % 64 for start in starts]
        together = network.forward(decodes, [], last, list(range(20)))
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vectors_of_every_width_compute_the_same(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that this processor has not: the compiler puts them together."""
    monkeypatch.setenv("CC", f"cc -DLANES={lanes} -Wno-psabi")
    sizes = {
        "intermediate_size": 33,
        "vocab_size": 513,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "num_key_value_heads": 2,
        "groups": 3,
    }
    for dtype in (torch.float32, torch.bfloat16):
        model, reference = made(Qwen3Config, sizes, dtype), made(Qwen3Config, sizes, dtype).float()
        network = NativeNetwork(model, 2)
        network.allocate(blocks_for(LENGTH))
        table, ids = list(range(1, 1 + blocks_for(LENGTH))), [place * 7 % 513 for place in range(150)]
        with torch.inference_mode():
            expected = reference(torch.tensor([ids])).logits[0]
            whole = network.forward([], [Span(table, 0, 0, 150)], ids, list(range(150)))
            off = (whole - expected).square().mean().sqrt() / expected.std()
            assert off < (1e-4 if dtype is torch.float32 else 0.05)
            for count in range(1, 15):
                chunk = Span(table, 20, 0, count)
                spans = ([chunk], []) if count == 1 else ([], [chunk])
                assert torch.equal(network.forward(*spans, ids[20 : 20 + count], [count - 1])[0], whole[19 + count])


REFUSED = {
    "dynamic rope": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}},
    "another activation": {"hidden_act": "gelu"},
    "biases": {"mlp_bias": True},
    "heads of 24": {"head_dim": 24},
    "odd width": {"hidden_size": 40},
}


@pytest.mark.parametrize("what", REFUSED)
def test_models_that_the_kernels_do_not_compute_are_left_to_torch(what: str) -> None:
    model = AutoModelForCausalLM.from_config(kit.tiny_config(**REFUSED[what]), dtype=torch.float32)
    assert not serves(model)
    assert serves(AutoModelForCausalLM.from_config(kit.tiny_config(), dtype=torch.float32))


def test_without_a_compiler_torch_serves_and_says_so(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    assert not ModelRunner(model).native
    assert "no-such-compiler" in caplog.text
    with pytest.raises(ProfileError, match="no-such-compiler"):
        create_app(kit.settings(model=str(tiny_folder), cpu_kernels="native"))


def test_a_compiler_that_fails_is_told_in_a_line(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'kernels: fatal error: no headers' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ProfileError, match="no headers") as raised:
        create_app(kit.settings(model=str(tiny_folder), cpu_kernels="native"))
    assert "\n" not in str(raised.value)


def test_native_kernels_are_refused_for_what_they_do_not_compute(tmp_path: Path) -> None:
    folder = kit.write_model(tmp_path, kit.tiny_config(hidden_act="gelu"))
    with pytest.raises(ProfileError, match="LlamaForCausalLM"):
        create_app(kit.settings(model=str(folder), cpu_kernels="native"))


def test_the_sources_compile_without_a_warning_for_processors_of_other_kinds(tmp_path: Path) -> None:
    """As far as this compiler knows them: vectors of four, eight and sixteen numbers."""
    sources = Path(kit.__file__).parents[2] / "generate_worker" / "engine" / "native"
    if os.uname().machine != "x86_64":
        pytest.skip("the flags are those of x86")
    for target in ("x86-64", "x86-64-v3", "x86-64-v4"):
        for define in ((), ("-DBFLOAT16",)):
            command = ["cc", "-std=gnu11", "-O3", f"-march={target}", *define, "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
            subprocess.run([*command, "decoder.c", "-o", str(tmp_path / "out.so"), "-lpthread", "-lm"], cwd=sources, check=True)


def test_a_block_is_a_panel() -> None:
    """The C sources take them for the same."""
    text = (Path(kit.__file__).parents[2] / "generate_worker" / "engine" / "native" / "numbers.h").read_text()
    assert f"#define WIDTH {BLOCK} " in text


def test_models_that_are_computed_at_once_take_turns() -> None:
    sizes = {
        "intermediate_size": 33,
        "vocab_size": 64,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "num_key_value_heads": 2,
        "groups": 3,
    }
    networks = [NativeNetwork(made(LlamaConfig, sizes, torch.float32), 3) for _ in range(4)]
    for network in networks:
        network.allocate(blocks_for(LENGTH))
    table = list(range(1, 1 + blocks_for(LENGTH)))

    def computed(network: NativeNetwork, turn: int) -> torch.Tensor:
        with torch.inference_mode():
            return network.forward([], [Span(table, 0, 0, 40)], [(turn + place) % 64 for place in range(40)], [39])

    alone = [computed(networks[turn % 4], turn) for turn in range(80)]
    with ThreadPoolExecutor(4) as pool:
        # Each thread has a network of its own, all have one team.
        parts = list(pool.map(lambda which: [computed(networks[which], turn) for turn in range(which, 80, 4)], range(4)))
    for which, part in enumerate(parts):
        assert all(torch.equal(one, other) for one, other in zip(part, alone[which::4], strict=True))
