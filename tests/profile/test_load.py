"""Loading: what a folder must hold, what a broken one says, and the fingerprint."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model_profile import BrokenModel, ModelNotFound, ModelProfile, ProfileError, load
from model_profile.profile import MAX_CONTEXT
from model_profile.sources import gguf_file
from service_kit.body import WORDS
from tests.tokenizers import REAL, folder, profile


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the tiny model's folder, to be changed."""
    target = tmp_path / "model"
    shutil.copytree(folder("tiny"), target)
    return target


def write(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values))


def change_config(model: Path, **values: Any) -> None:
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("name", [*REAL, "smollm2", "tiny"])
def test_every_id_that_may_come_out_is_below_the_vocabulary(name: str) -> None:
    loaded = profile(name)
    assert max(loaded.tokenizer.get_vocab(with_added_tokens=True).values()) < loaded.vocab_size
    assert loaded.eos_token_ids
    assert all(index < loaded.vocab_size for index in loaded.eos_token_ids)
    assert loaded.tokenizer.truncation is None
    assert loaded.tokenizer.padding is None
    assert len(loaded.fingerprint) >= 16
    assert int(loaded.fingerprint, 16)


def test_smollm2() -> None:
    loaded = profile("smollm2")
    assert (loaded.max_model_len, loaded.vocab_size, loaded.eos_token_ids, loaded.bos_token_id) == (8192, 49152, (2,), 1)
    assert loaded.special_tokens["eos_token"] == "<|im_end|>"


def test_eos_ids_come_from_three_places_primary_first(model: Path) -> None:
    write(model / "config.json", eos_token_id=7, vocab_size=500)
    write(model / "generation_config.json", eos_token_id=[7, 2, 9], temperature=0.6, top_k=20, do_sample=True)
    loaded = load(str(model))
    assert loaded.eos_token_ids == (2, 7, 9)
    assert loaded.vocab_size == 500
    assert loaded.generation_defaults == {"temperature": 0.6, "top_k": 20}


def test_eos_token_as_an_added_token(model: Path) -> None:
    change_config(model, eos_token={"__type": "AddedToken", "content": "<|user|>"})
    assert load(str(model)).eos_token_ids == (3,)


def test_values_nested_under_text_config(model: Path) -> None:
    write(model / "config.json", text_config={"max_position_embeddings": 777, "vocab_size": 600, "eos_token_id": [5]})
    loaded = load(str(model))
    assert (loaded.max_model_len, loaded.vocab_size, loaded.eos_token_ids) == (777, 600, (2, 5))


def test_context_length_the_flag_then_config_then_tokenizer(model: Path) -> None:
    assert load(str(model)).max_model_len == 4096
    write(model / "config.json", max_position_embeddings=512)
    assert load(str(model)).max_model_len == 512
    assert load(str(model), max_model_len=99).max_model_len == 99
    assert load(str(model), max_model_len=10**8).max_model_len == MAX_CONTEXT == WORDS.numbers


@pytest.mark.parametrize("length", [None, 10**30, 1e30, 0, "long"])
def test_no_context_length_asks_for_the_flag(model: Path, length: Any) -> None:
    change_config(model, model_max_length=length)
    with pytest.raises(BrokenModel, match="--max-model-len"):
        load(str(model))


def test_the_template_beside_the_tokenizer_wins(model: Path) -> None:
    write(model / "chat_template.json", chat_template="legacy")
    assert source(load(str(model))).startswith("{{ bos_token }}")
    change_config(model, chat_template=None)
    assert source(load(str(model))) == "legacy"
    (model / "chat_template.jinja").write_text("beside")
    assert source(load(str(model))) == "beside"
    (model / "mine.jinja").write_text("mine")
    assert source(load(str(model), chat_template=str(model / "mine.jinja"))) == "mine"


def source(loaded: ModelProfile) -> str:
    assert loaded.chat_template is not None
    return loaded.chat_template.source


def test_a_model_without_a_template_loads(model: Path) -> None:
    change_config(model, chat_template=None)
    assert load(str(model)).chat_template is None


def test_fingerprint_changes_with_what_it_covers_and_with_nothing_else(model: Path, tmp_path: Path) -> None:
    first = load(str(model)).fingerprint
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(model, elsewhere)
    assert load(str(elsewhere), max_model_len=64).fingerprint == first
    seen = {first}
    change_config(model, chat_template="other")
    seen.add(load(str(model)).fingerprint)
    change_config(model, eos_token="<s>")
    seen.add(load(str(model)).fingerprint)
    write(model / "generation_config.json", eos_token_id=5)
    seen.add(load(str(model)).fingerprint)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"][-1]["special"] = True
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    seen.add(load(str(model)).fingerprint)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer.json", "{", "no valid tokenizer"),
        ("tokenizer.json", "{}", "no valid tokenizer"),
        ("tokenizer.json", "[]", "no valid tokenizer"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", "[1]", "must hold a JSON object"),
        ("config.json", "[" * 100_000, "not valid JSON"),
        ("generation_config.json", "\udcff", "not valid JSON"),
        ("generation_config.json", '{"temperature": -1}', "temperature"),
        ("chat_template.jinja", "{% for %}", "not valid Jinja"),
        ("chat_template.jinja", "\udcff", "not UTF-8"),
    ],
)
def test_a_broken_file_is_named(model: Path, file: str, content: str | None, says: str) -> None:
    if content is None:
        (model / file).unlink()
    else:
        (model / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BrokenModel, match=says) as caught:
        load(str(model))
    assert file in str(caught.value)


def test_tokenizer_model_alone(model: Path) -> None:
    (model / "tokenizer.json").rename(model / "tokenizer.model")
    with pytest.raises(BrokenModel, match=r"tokenizer\.model but no tokenizer\.json"):
        load(str(model))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nope", "no/such.gguf", "a b", "", "x/y/z"])
def test_nothing_by_that_name(name: str) -> None:
    with pytest.raises((ModelNotFound, BrokenModel), match=r"--model takes|no tokenizer"):
        load(name)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_text("x")
    with pytest.raises(BrokenModel, match=r"no \.gguf file"):
        load(str(tmp_path / "weights.bin"))


def test_a_missing_template_file(model: Path) -> None:
    with pytest.raises(BrokenModel, match=r"nope\.jinja cannot be read"):
        load(str(model), chat_template=str(model / "nope.jinja"))


def test_the_hub_fails_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_: object, **options: Any) -> str:
        assert not any("safetensors" in pattern or "bin" in pattern for pattern in options["allow_patterns"])
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelNotFound, match=r"could not be fetched from the hub: no connection"):
        load("owner/name")


def test_gguf_file_is_none_for_a_folder(model: Path) -> None:
    assert gguf_file(str(model)) is None
    packaged = gguf_file("smollm2")
    assert packaged is not None
    assert packaged.suffix == ".gguf"


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged = gguf_file("smollm2")
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(blocked / "cache"))
    with pytest.raises(ProfileError, match="TANDEM_CACHE_DIR"):
        load(str(packaged))


def test_loading_needs_no_torch_and_no_transformers() -> None:
    code = (
        "import sys, model_profile; model_profile.load(sys.argv[1]);"
        "heavy = {'torch', 'transformers', 'llama_cpp', 'numpy', 'gguf'} & set(sys.modules); sys.exit(f'{heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code, "smollm2"], check=True)
