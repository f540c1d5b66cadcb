"""Outputs that no model should write: ids at random, markers among them far too often. Nothing raises, is lost or leaks."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harmony.kit import NAME, SPECIAL, STATE_LIMIT, assert_no_marker, divided, ids_of, read, spelled
from tests.parsers.kit import Answer, tokenizer

markers = st.sampled_from([200_005, 200_006, 200_007, 200_008, 200_003, 200_002, 200_012]).map(lambda token_id: [token_id])
HEADER_WORDS = (
    "assistant", "user", "tool", "system", "analysis", "commentary", "final", " to=functions.f", " to=python", "to=", " json",
    " code", "functions.f to=assistant", " ", "\n", "comment", " to", "weird",
)  # fmt: skip
header_words = st.sampled_from(HEADER_WORDS).map(ids_of)
sentences = st.sampled_from(("Die Katze sitzt. ", " 日本語のテキスト", "🪨👩‍👩‍👧‍👦!", '{"a": "b', '"}', " ", "\n\n")).map(spelled)
long_texts = st.sampled_from((" to=f" * 90, "a" * 333, "🪨" * 90, "日" * 110, " json" * 170)).map(spelled)
special = st.sampled_from(SPECIAL).map(lambda token_id: [token_id])
anything = st.integers(0, 200_018).map(lambda token_id: [token_id])
HALVES = (*(token_id for text in ("🪨", "日", "é") for token_id in tokenizer(NAME).encode(text).ids), 160, 234)
halves = st.sampled_from(HALVES).flatmap(lambda token_id: st.sampled_from([[token_id], [token_id] * 170]))


def joined(parts: list[list[int]]) -> list[int]:
    return [token_id for part in parts for token_id in part]


kinds = (markers, markers, markers, header_words, header_words, header_words, sentences, special, anything, halves, long_texts)
outputs = st.lists(st.one_of(*kinds), max_size=30).map(joined)


@settings(max_examples=300, deadline=None)
@given(ids=outputs, data=st.data())
def test_random_ids_read_alike_in_any_chunking(ids: list[int], data: st.DataObject) -> None:
    choice = data.draw(st.sampled_from(("none", "auto", "required", "named")))
    keep_special = data.draw(st.booleans())
    prompt = data.draw(st.one_of(st.none(), outputs))
    whole = read([ids], prompt, choice, keep_special=keep_special)
    for chunks in ([[token_id] for token_id in ids] or [[]], data.draw(divided(ids))):
        found = read(chunks, prompt, choice, keep_special=keep_special)
        assert found.answer == whole.answer
        assert found.reasoning_tokens == whole.reasoning_tokens
        assert found.largest < STATE_LIMIT
    assert_no_marker(whole.answer)
    assert choice != "none" or not whole.answer.calls


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_words_are_lost(data: st.DataObject) -> None:
    """Words in every place where a model could say them. Two of them, so that they are no word that a header may have there."""
    parts = data.draw(st.lists(st.one_of(markers, markers, header_words, st.just([])), max_size=16))
    said = [f" Elster{number} Dachs{number}." if data.draw(st.booleans()) else "" for number in range(len(parts))]
    ids = joined([token_id for part, words in zip(parts, said, strict=True) for token_id in (part, spelled(words))])
    found = read([[token_id] for token_id in ids] or [[]]).answer
    assert sorted(_words(all_text(found))) == sorted(_words("".join(said)))


def all_text(found: Answer) -> str:
    return " ".join((found.reasoning, found.content, *(text for call in found.calls for text in call)))


def _words(text: str) -> list[str]:
    return re.findall(r"(?:Elster|Dachs)\d+", text)
