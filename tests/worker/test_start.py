"""What a model folder must hold, which ids end a choice, and one clear line when something is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from generate_worker import stop_tokens, weights
from generate_worker.app import create_app
from model_profile.errors import ProfileError
from tests.worker.kit import settings, tiny_config


def refusal(folder: Path, **given: Any) -> str:
    with pytest.raises(ProfileError) as raised:
        create_app(settings(model=str(folder), **given))
    message = str(raised.value)
    assert "\n" not in message
    return message


def copy_of(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target / "copy"))


def test_a_broken_model_is_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    assert "no such" in refusal(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "config.json" in refusal(empty)
    folder = copy_of(tiny_folder, tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    assert str(folder) in refusal(folder)
    file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    assert "safetensors" in refusal(folder)
    broken = copy_of(tiny_folder, tmp_path / "second")
    (broken / "config.json").write_text("{")
    assert str(broken) in refusal(broken)


def test_weights_that_lack_tensors_are_refused_not_made_up(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "config.json").write_text(
        json.dumps({**tiny_config(num_hidden_layers=3).to_dict(), "architectures": ["LlamaForCausalLM"]})
    )
    assert "lack" in refusal(folder)


def test_the_context_cannot_be_longer_than_the_models(tiny_folder: Path) -> None:
    assert "--max-model-len" in refusal(tiny_folder, max_model_len=100_000)


def test_a_gguf_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF broken")
    assert str(path) in refusal(path)
    with pytest.raises(ProfileError):
        weights.weights_folder(str(path))


@pytest.mark.parametrize(
    ("files", "primary", "all_ids"),
    [
        ({}, None, set()),
        ({"config.json": {"eos_token_id": 5}}, 5, {5}),
        ({"config.json": {"eos_token_id": [5, 6]}, "generation_config.json": {"eos_token_id": [6, 7]}}, 5, {5, 6, 7}),
        ({"config.json": {"text_config": {"eos_token_id": 9}}}, 9, {9}),
        (
            {
                "config.json": {"eos_token_id": [5, 6]},
                "tokenizer_config.json": {"eos_token": "<e>", "added_tokens_decoder": {"6": {"content": "<e>"}}},
            },
            6,
            {5, 6},
        ),
        (
            {
                "tokenizer_config.json": {"eos_token": {"content": "<e>"}},
                "tokenizer.json": {"added_tokens": [{"id": 3, "content": "<x>"}, {"id": 4, "content": "<e>"}]},
            },
            4,
            {4},
        ),
        ({"tokenizer_config.json": {"eos_token": "e"}, "tokenizer.json": {"model": {"vocab": {"e": 8}}}}, 8, {8}),
        ({"config.json": {"eos_token_id": True}, "tokenizer_config.json": {"eos_token": None}}, None, set()),
    ],
)
def test_stop_ids_come_from_all_files(tmp_path: Path, files: dict[str, Any], primary: int | None, all_ids: set[int]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    found = stop_tokens.read(tmp_path)
    assert (found.primary, set(found.all)) == (primary, all_ids)
