"""GGUF: a real tokenizer written into such a file and read back tokenizes as before."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model_profile import BrokenModel, gguf_metadata, load
from model_profile.gguf_tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, tokenizer_json
from model_profile.sources import gguf_file
from tests.tokenizers import TINY_TEMPLATE, folder, profile

PRE = {"qwen3": "qwen2", "llama3_1": "llama-bpe", "deepseek_v3": "deepseek-v3", "gptoss": "gpt-4o", "smollm2": "smollm"}

texts = st.text(max_size=60) | st.sampled_from(
    [
        "Hello world, it's 12345678 o'clock; I'LL see\n\n  tabs\tand\r\nends   ",
        "naïve café e\u0301 — 日本語とカタカナ 中文，한국어 नमस्ते",
        "👩🏽‍🚀🙂\u200d fi ﷽ \u00a0x\u3000y",
        "def f(x):\n    return {'a': x**2}  # <|im_end|> </s> <｜User｜>",
        "CamelCaseWORDS aB1c2 $%^&*()_+ //!?… \x00\x7f",
    ]
)


def metadata_of(name: str) -> dict[str, Any]:
    """What a GGUF file of this tokenizer says, built from its tokenizer.json."""
    content = json.loads((folder(name) / "tokenizer.json").read_text())
    model, added = content["model"], {token["id"]: token for token in content["added_tokens"]}
    pieces = {index: piece for piece, index in model["vocab"].items()} | {index: token["content"] for index, token in added.items()}
    tokens = [pieces.get(index, f"[unused{index}]") for index in range(max(pieces) + 1)]

    def kind(index: int) -> int:
        if index in added:
            return CONTROL if added[index]["special"] else USER_DEFINED
        return BYTE if model["byte_fallback"] and tokens[index].startswith("<0x") else NORMAL

    values: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kind(index) for index in range(len(tokens))],
        "tokenizer.ggml.bos_token_id": profile(name).bos_token_id,
    }
    if name in PRE:
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        return values | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": PRE[name], "tokenizer.ggml.merges": merges}
    # Scores order merges: the earlier a piece is made, the better.
    first = {left + right: rank for rank, (left, right) in reversed(list(enumerate(model["merges"])))}
    scores = [-float(first.get(token, 0)) for token in tokens]
    return values | {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores, "tokenizer.ggml.unknown_token_id": 0}


def built(name: str) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(metadata_of(name))))


@pytest.mark.parametrize("name", PRE)
def test_reading_back_tokenizes_as_before(name: str) -> None:
    before, after = profile(name).tokenizer, built(name)

    @settings(max_examples=150, deadline=None)
    @given(text=texts)
    def check(text: str) -> None:
        for special in (False, True):
            ids = before.encode(text, add_special_tokens=special).ids
            assert after.encode(text, add_special_tokens=special).ids == ids
        assert after.decode(ids, skip_special_tokens=False) == before.decode(ids, skip_special_tokens=False)

    check()


def sentencepiece(text: str, scores: dict[str, float]) -> list[str]:
    """The algorithm, read literally: join the neighbours whose union scores best, the leftmost of equals, until none is a piece."""
    parts = list(text)
    while True:
        unions = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not unions:
            return parts
        at = -max(unions)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="the catsonm wirldHé日🙂", max_size=30), data=st.data())
def test_merges_follow_from_scores(text: str, data: st.DataObject) -> None:
    values = metadata_of("tiny")
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    order = data.draw(st.permutations(range(len(tokens))))
    values["tokenizer.ggml.scores"] = [-float(rank) for rank in order]
    scores = {token: -float(rank) for token, kind, rank in zip(tokens, types, order, strict=True) if kind == NORMAL}
    expected: list[str] = []
    for part in sentencepiece("▁" + text.replace(" ", "▁"), scores) if text else []:
        expected += [part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()]
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(values)))
    assert tokenizer.encode(text, add_special_tokens=False).tokens == expected


def write_gguf(path: Path, values: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture
def tiny_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path / "cache"))
    extra = {"tokenizer.chat_template": TINY_TEMPLATE, "llama.context_length": 256, "tokenizer.ggml.eos_token_id": 2}
    return write_gguf(tmp_path / "tiny.gguf", metadata_of("tiny") | extra)


def test_a_gguf_file_is_a_model(tiny_gguf: Path) -> None:
    loaded, tiny = load(str(tiny_gguf)), profile("tiny")
    assert gguf_file(str(tiny_gguf)) == tiny_gguf
    assert (loaded.max_model_len, loaded.eos_token_ids, loaded.vocab_size) == (256, (2,), tiny.vocab_size)
    assert loaded.chat_template == tiny.chat_template
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("Hello the cat").ids) == "Hello the cat"
    assert load(str(tiny_gguf)).fingerprint == loaded.fingerprint


def test_a_changed_file_is_read_anew(tiny_gguf: Path) -> None:
    first = load(str(tiny_gguf))
    write_gguf(tiny_gguf, metadata_of("tiny") | {"tokenizer.chat_template": "other, longer", "llama.context_length": 99})
    second = load(str(tiny_gguf))
    assert (second.max_model_len, second.fingerprint != first.fingerprint) == (99, True)


def test_the_reader_agrees_with_the_gguf_package() -> None:
    path = gguf_file("smollm2")
    assert path is not None
    mine = gguf_metadata.read(path)
    fields = gguf.GGUFReader(path).fields
    theirs = {key: field for key, field in fields.items() if not key.startswith("GGUF.")}
    assert set(mine) == set(theirs)
    small = [key for key, field in theirs.items() if len(field.data) < 10]
    assert {key: mine[key] for key in small} == {key: theirs[key].contents() for key in small}


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_a_broken_model(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("gguf") / "broken.gguf"
    whole = write_gguf(path, {"tokenizer.ggml.tokens": ["a", "b"], "x": 1.5, "y": True, "z": "text"}).read_bytes()
    size = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:size])
    with pytest.raises(BrokenModel, match=r"broken\.gguf"):
        gguf_metadata.read(path)
    path.write_bytes(data.draw(st.binary(max_size=64)))
    with pytest.raises(BrokenModel, match=r"broken\.gguf"):
        gguf_metadata.read(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer.ggml.pre": "unheard-of"}, "'unheard-of'"),
        ({"tokenizer.ggml.model": "t5"}, "'t5'"),
        ({"tokenizer.ggml.tokens": None}, "no vocabulary"),
        ({"tokenizer.ggml.merges": None}, "no merges"),
        ({"tokenizer.ggml.model": "llama"}, "no score for each token"),
        ({"tokenizer.ggml.token_type": [1]}, "token types"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], says: str) -> None:
    values = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.merges": []}
    with pytest.raises(BrokenModel, match=says):
        tokenizer_json(values | change)


def test_token_types() -> None:
    types = [UNKNOWN, CONTROL, USER_DEFINED, NORMAL, BYTE]
    values = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": list("abcde"), "tokenizer.ggml.merges": []}
    added = tokenizer_json(values | {"tokenizer.ggml.token_type": types})["added_tokens"]
    assert [(token["id"], token["special"]) for token in added] == [(0, True), (1, True), (2, False)]
