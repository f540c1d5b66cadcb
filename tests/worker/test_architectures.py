"""Families of models, each tiny and random: greedy ids are those that transformers itself generates, past every sliding window."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForCausalLM

from generate_worker.app import create_app
from model_profile.errors import ProfileError
from tests.worker.kit import MAX_LEN, VOCAB, live, settings, stream, write_model
from tests.worker.kit import body as asking

pytestmark = pytest.mark.anyio

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-windows": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}),
    "qwen3": ("Qwen3Config", {}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "gemma": ("GemmaConfig", {}),
    "gemma2": ("Gemma2Config", {"sliding_window": 16, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 16, "query_pre_attn_scalar": 16}),
    "phi3": ("Phi3Config", {}),
    "gpt-oss": ("GptOssConfig", {"sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2}),
}


NATIVE = frozenset({"llama", "qwen2", "qwen2-windows", "qwen3", "mistral"})
"""Families that the native kernels compute; all are computed by torch's too."""


@pytest.mark.parametrize(("family", "kernels"), [(one, "torch") for one in FAMILIES] + [(one, "native") for one in sorted(NATIVE)])
async def test_greedy_is_what_transformers_generates(family: str, kernels: str, tmp_path: Path) -> None:
    name, changes = FAMILIES[family]
    folder = write_model(tmp_path, getattr(transformers, name)(**{**SIZES, **changes}))
    # Eager attention is the reference: it is written out in every model, and the only one that knows soft caps and sinks.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [[3 + (i * 7 + start) % 500 for i in range(length)] for start, length in ((0, 5), (9, 40))]
    with live(model=str(folder), prefill_chunk_tokens=12, cpu_kernels=kernels, torch_threads=2) as worker:
        async with worker.client() as client:
            for prompt in prompts:
                ids = torch.tensor([prompt])
                with torch.inference_mode():
                    made = model.generate(
                        ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False, use_cache=True
                    )
                told = await stream(client, asking(prompt, max_tokens=30))
                assert told.ids() == made[0, len(prompt) :].tolist()


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "state space": ("MambaConfig", {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1}),
    "alibi": ("BloomConfig", {"vocab_size": 64, "hidden_size": 16, "n_layer": 1, "n_head": 2}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_served_is_refused_at_load_by_name(kind: str, tmp_path: Path) -> None:
    name, sizes = REFUSED[kind]
    folder = write_model(tmp_path, getattr(transformers, name)(**sizes))
    with pytest.raises(ProfileError, match=name.removesuffix("Config")) as raised:
        create_app(settings(model=str(folder), max_model_len=64))
    assert "\n" not in str(raised.value)


def test_a_model_that_computes_something_else_here_is_refused(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def otherwise(*given: Any, **named: Any) -> torch.Tensor:
        return scaled_dot_product_attention(*given, **named) * 1.1

    monkeypatch.setattr("generate_worker.engine.attention.scaled_dot_product_attention", otherwise)
    with pytest.raises(ProfileError, match="otherwise than in transformers"):
        create_app(settings(model=str(tiny_folder), cpu_kernels="torch"))
