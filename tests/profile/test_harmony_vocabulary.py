"""Harmony's encoding is given for gpt-oss' tokenizer, and for no other, however much it looks like it."""

import pytest
from tokenizers import AddedToken, Tokenizer

from model_profile.errors import BrokenModel
from model_profile.harmony_vocabulary import MARKERS, harmony_encoding
from tests.tokenizers import folder, profile


def test_it_reads_ids_as_the_tokenizer_does() -> None:
    tokenizer = profile("gptoss").tokenizer
    text = "<|start|>assistant<|channel|>final<|message|>日本 👩\n\n  x<|return|>"
    assert harmony_encoding(tokenizer).decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_other_tokenizers_are_refused_also_once_the_vocabulary_is_there() -> None:
    harmony_encoding(profile("gptoss").tokenizer)
    with pytest.raises(BrokenModel, match="has not got harmony's markers"):
        harmony_encoding(profile("qwen3").tokenizer)
    marked = Tokenizer.from_file(str(folder("qwen3") / "tokenizer.json"))
    marked.add_special_tokens([AddedToken(marker) for marker in MARKERS])
    with pytest.raises(BrokenModel, match="not gpt-oss' vocabulary"):
        harmony_encoding(marked)
