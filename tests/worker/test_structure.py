"""Structured outputs: whatever the seed, what comes has the structure, and what is no structure is a 400 that says why."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from generate_worker.structure import _closed
from model_profile import load
from model_profile.reasoning import marks
from tests.worker.kit import Live, live, stream, tiny_config, write_model
from tests.worker.kit import body as asking

pytestmark = pytest.mark.anyio

EOS = 0
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokens are single characters, and the marks of reasoning."""
    folder = tmp_path_factory.mktemp("structured")
    characters = [chr(code) for code in range(32, 127)]
    vocabulary = {text: place for place, text in enumerate(["</s>", "<think>", "</think>", "<turn>", *characters])}
    added = [
        {
            "id": vocabulary[text],
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text in ("</s>", "<think>", "</think>", "<turn>")
    ]
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "fuse_unk": False, "byte_fallback": False}
    rest = {"version": "1.0", "normalizer": None, "post_processor": None, "truncation": None, "padding": None}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {**rest, "added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level, "model": model}
    vocabulary["Ġ"] = vocabulary.pop(" ")
    write_model(folder, tiny_config(vocab_size=len(vocabulary), eos_token_id=EOS))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{{ '<turn>' }}{% for m in messages %}{{ m.content }}{% endfor %}{# <think> #}{{ '<think>' if open else '' }}"
    config = {"eos_token": "</s>", "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def structured(folder: Path) -> Iterator[Live]:
    with live(model=str(folder), tokenizer_for_grammar=str(folder), max_num_seqs=4) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load(str(folder), max_model_len=256).tokenizer


def written(**given: Any) -> dict[str, Any]:
    """A request whose answer begins behind all reasoning."""
    return {**asking([5, 6], **given), "reasoning_ended": True}


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text


KINDS: list[tuple[dict[str, Any], str]] = [
    ({"regex": "[0-9]{3}-[a-f]{2}"}, "[0-9]{3}-[a-f]{2}"),
    ({"choice": ["yes", 'no, "never"', "\\d"]}, r'yes|no, "never"|\\d'),
    ({"grammar": 'root ::= "a" [0-9] "b"'}, "a[0-9]b"),
    ({"json": {"enum": [1, "two", None]}}, r'1|"two"|null'),
    ({"json": json.dumps({"const": "as text"})}, '"as text"'),
    ({"json": SCHEMA, "disable_any_whitespace": True, "disable_additional_properties": True}, r'\{"a":-?[0-9]+,"b":"[xy]"\}'),
    (
        {
            "structural_tag": json.dumps(
                {"structures": [{"begin": "<f>", "schema": {"const": 7}, "end": "</f>"}], "triggers": ["<f"]}
            )
        },
        r"[^<]*(<(?!f)[^<]*|<f>7</f>[^<]*)*",
    ),
]


@pytest.mark.parametrize(("wanted", "pattern"), KINDS, ids=[next(iter(wanted)) for wanted, _ in KINDS])
async def test_every_choice_has_the_structure(structured: Live, tokenizer: Tokenizer, wanted: dict[str, Any], pattern: str) -> None:
    async with structured.client() as client:
        told = await stream(client, written(structured_outputs=wanted, n=3, temperature=1.5, seed=3, max_tokens=150))
    for choice, done in told.dones.items():
        text = shown(tokenizer, told.ids(choice)).removesuffix("</s>")
        if done.choices[0].finish_reason == "stop":
            assert re.fullmatch(pattern, text), text
        else:
            assert wanted.keys() & {"json", "structural_tag"}, text


async def test_it_goes_on_where_it_was_cut(structured: Live) -> None:
    request = written(structured_outputs={"regex": "[a-z]{12}[0-9]{12}"}, temperature=1.0, seed=8, max_tokens=30)
    async with structured.client() as client:
        whole = (await stream(client, request)).ids()
        for cut in range(1, len(whole) - 1, 4):
            assert (await stream(client, {**request, "output_token_ids": whole[:cut]})).ids() == whole[cut:]
        answer = await client.post("/inference/v1/generate", json={**request, "output_token_ids": [*whole[:3], 50, 50]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("output_token_ids.")


WRONG: list[dict[str, Any]] = [
    {"regex": "(("},
    {"json": {"type": "nonsense"}},
    {"json": "{"},
    {"json": 5},
    {"choice": []},
    {"choice": [1]},
    {"choice": "yes"},
    {"grammar": "root ::= nothing"},
    {"structural_tag": "{}"},
    {"structural_tag": json.dumps({"structures": [{"begin": "a", "schema": {}, "end": ""}], "triggers": ["b"]})},
    {"regex": "a", "json": {}},
    {"disable_any_whitespace": True},
    {"something": 1},
]


@pytest.mark.parametrize("wanted", WRONG, ids=str)
async def test_what_is_no_structure_is_a_400(structured: Live, wanted: dict[str, Any]) -> None:
    async with structured.client() as client:
        answer = await client.post("/inference/v1/generate", json=asking([5, 6], structured_outputs=wanted))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "sampling_params.structured_outputs"


async def test_a_worker_that_knows_no_tokenizer_says_so(worker: Live) -> None:
    async with worker.client() as client:
        answer = await client.post("/inference/v1/generate", json=asking([5, 6], structured_outputs={"regex": "a"}))
    assert answer.status_code == 400
    assert "--tokenizer-for-grammar" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("prompt", "ended", "reasons"),
    [
        ("<turn>ab", None, "may"),
        ("<turn>ab<think>", None, "does"),
        ("<turn>ab<think></think>", None, "no"),
        ("<turn><think>", True, "no"),
    ],
)
async def test_a_structure_waits_for_the_end_of_reasoning(
    structured: Live, tokenizer: Tokenizer, prompt: str, ended: bool | None, reasons: str
) -> None:
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    start, end = (tokenizer.token_to_id(text) for text in ("<think>", "</think>"))
    # What the model would like to write: the mark that begins or ends its reasoning.
    bias = {str(start): 100} if reasons == "may" else {str(end): 100}
    request = asking(ids, structured_outputs={"regex": "[0-9]{2}"}, logit_bias=bias, max_tokens=6)
    async with structured.client() as client:
        told = shown(tokenizer, (await stream(client, {**request, "reasoning_ended": ended})).ids())
    if reasons == "may":
        assert told.startswith("<think>")
    elif reasons == "does":
        assert re.fullmatch("</think>[0-9]{2}</s>", told)
    else:
        assert re.fullmatch("[0-9]{2}</s>", told)


def test_a_model_without_marks_of_reasoning_has_none(tokenizer: Tokenizer) -> None:
    assert marks(None, tokenizer) is None
    assert marks("mistral", tokenizer) is None


def test_a_closed_schema_has_no_other_properties_wherever_it_names_any() -> None:
    inner = {"type": "object", "properties": {"properties": {"type": "string"}}}
    open_one = {"type": "object", "properties": {}, "additionalProperties": True}
    closed = _closed({"anyOf": [inner, open_one], "$defs": {"d": inner}, "default": inner})
    assert closed["anyOf"] == [{**inner, "additionalProperties": False}, open_one]
    assert closed["$defs"] == {"d": {**inner, "additionalProperties": False}}
    assert closed["default"] == inner
