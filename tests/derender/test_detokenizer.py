"""Detokenizing a chunk at a time equals `tokenizer.decode` of the whole, for every tokenizer and every cut (laws L1, L2, L8)."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from derender_service.byte_fallback import MAX_RUN
from derender_service.detokenizer import Detokenizer
from derender_service.window import START, Window
from tests.derender.kit import EVERY, TABLED, cut, detokenizer, ids, special_ids, texts, tokenizer, whole_text
from tests.derender.small_tokenizers import wordpiece


def read(reader: Detokenizer, window: Window, chunks: list[list[int]], *, keep_special: bool = False) -> str:
    parts = []
    for chunk in chunks:
        text, window = reader.push(window, chunk, keep_special=keep_special)
        parts.append(text)
    return "".join(parts) + reader.finish(window)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), keep_special=st.booleans())
def test_any_cut_equals_decoding_the_whole(name: str, data: st.DataObject, keep_special: bool) -> None:
    token_ids = data.draw(ids(name))
    chunks = data.draw(cut(token_ids))
    assert read(detokenizer(name), START, chunks, keep_special=keep_special) == whole_text(
        name, token_ids, keep_special=keep_special
    )


@pytest.mark.parametrize("name", TABLED)
@settings(max_examples=40, deadline=None)
@given(text=texts)
def test_text_survives_the_round_trip_one_token_at_a_time(name: str, text: str) -> None:
    encoded = tokenizer(name).encode(text, add_special_tokens=False).ids
    assert read(detokenizer(name), START, [[i] for i in encoded]) == tokenizer(name).decode(encoded)


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "gemma3"])
@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=30))
def test_equals_the_librarys_stream_where_that_is_right(name: str, text: str) -> None:
    """`DecodeStream` is right for whole characters (it stumbles over invalid bytes, and over U+FFFD itself)."""
    own = tokenizer(name)
    encoded = own.encode(text, add_special_tokens=False).ids
    assume("\ufffd" not in own.decode(encoded))  # SmolLM2 has no token for some bytes
    stream = DecodeStream(skip_special_tokens=True)
    expected = "".join(stream.step(own, i) or "" for i in encoded)
    assert read(detokenizer(name), START, [[i] for i in encoded]) == expected


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_output_goes_on_where_the_prompt_ends(name: str, data: st.DataObject) -> None:
    """Seeded with a prompt of whole words, the text is what decoding both together adds."""
    prompt = tokenizer(name).encode("the cat", add_special_tokens=False).ids
    output = data.draw(ids(name))
    window = detokenizer(name).seed(prompt, keep_special=False)
    shown = whole_text(name, prompt + output)
    assert shown.startswith(whole_text(name, prompt))
    assert read(detokenizer(name), window, data.draw(cut(output))) == shown[len(whole_text(name, prompt)) :]


@pytest.mark.parametrize("name", ["tiny", "metaspace"])
def test_a_prompt_keeps_the_first_tokens_space(name: str) -> None:
    word = tokenizer(name).token_to_id("▁cat")
    prompt = [tokenizer(name).token_to_id("▁the")]
    assert read(detokenizer(name), START, [[word]]) == "cat"
    assert read(detokenizer(name), detokenizer(name).seed([], keep_special=False), [[word]]) == "cat"
    assert read(detokenizer(name), detokenizer(name).seed(prompt, keep_special=False), [[word]]) == " cat"


@pytest.mark.parametrize("name", TABLED)
def test_seeding_looks_past_the_special_tokens_at_the_prompts_end(name: str) -> None:
    """A chat prompt ends in special tokens; the text before them still decides that this is no start."""
    word = tokenizer(name).encode("the cat", add_special_tokens=False).ids
    seeded = detokenizer(name).seed([*word, *special_ids(name)[:1] * 20], keep_special=False)
    assert read(detokenizer(name), seeded, [word[-1:]]) == whole_text(name, [*word, word[-1]])[len(whole_text(name, word)) :]


def test_a_character_that_the_prompt_begins_and_the_output_ends_was_shown_with_the_prompt() -> None:
    own, reader = tokenizer("smollm2"), detokenizer("smollm2")
    emoji = own.encode("👩", add_special_tokens=False).ids
    assert len(emoji) > 2
    window = reader.seed(emoji[:1], keep_special=False)
    rest = [*emoji[1:], *own.encode("ok", add_special_tokens=False).ids]
    assert read(reader, window, [rest]) == read(reader, window, [[i] for i in rest]) == "ok"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_window_stays_small(data: st.DataObject) -> None:
    """L3: what is carried does not grow with the output, whatever the ids."""
    name = data.draw(st.sampled_from(EVERY))
    window, reader = START, detokenizer(name)
    for token_id in data.draw(ids(name, max_size=200)) * 4:
        _, window = reader.push(window, [token_id], keep_special=True)
        assert len(window.context) + len(window.pending) <= 8 + MAX_RUN


def test_a_run_of_byte_tokens_is_text_only_if_all_of_it_is() -> None:
    """As the library has it: one bad byte makes every byte of its run U+FFFD; the next run is read afresh."""
    own, reader = tokenizer("tiny"), detokenizer("tiny")
    byte = {value: own.token_to_id(f"<0x{value:02X}>") for value in range(256)}
    word = own.token_to_id("▁cat")
    good, bad = [byte[b] for b in "日本".encode()], [byte[b] for b in "日".encode()] + [byte[0xFF], byte[0x41]]
    assert read(reader, START, [[i] for i in [*good, word, *bad, word, *good]]) == "日本 cat" + "\ufffd" * 5 + " cat日本"
    assert own.decode([*good, word, *bad, word, *good]) == "日本 cat" + "\ufffd" * 5 + " cat日本"


def test_a_long_run_of_byte_tokens_is_not_held_back_for_ever() -> None:
    own, reader = tokenizer("tiny"), detokenizer("tiny")
    run = [own.token_to_id(f"<0x{b:02X}>") for b in ("日" * 500).encode()]
    window, sent = START, 0
    for count, token_id in enumerate(run, start=1):
        text, window = reader.push(window, [token_id], keep_special=True)
        sent += len(text)
        assert count // 3 - sent <= MAX_RUN // 3 + 1
    assert sent + len(reader.finish(window)) == 500


def test_neighbouring_special_tokens_may_be_joined() -> None:
    own = wordpiece()
    reader = Detokenizer(own, own.get_vocab_size())
    row = [own.token_to_id(token) for token in ("the", "[SEP]", "[CLS]", "cat")]
    apart, _ = reader.push(START, row, keep_special=True)
    joined, _ = reader.push(START, row, keep_special=True, join_added=True)
    assert apart == own.decode(row, skip_special_tokens=False) == "the [SEP] [CLS] cat"
    assert joined == "the [SEP][CLS] cat"


def test_ids_without_a_token_have_no_text() -> None:
    """Models pad their embeddings: such an id can be sampled, and means nothing."""
    own: Tokenizer = tokenizer("smollm2")
    reader = Detokenizer(own, own.get_vocab_size() + 100)
    cat = own.encode("cat", add_special_tokens=False).ids
    assert reader.whole([*cat, own.get_vocab_size() + 7, *cat], keep_special=False) == "catcat"


@pytest.mark.parametrize("name", EVERY)
def test_the_bytes_of_tokens_spell_the_text(name: str) -> None:
    """R57: each token's bytes are real; put together they are the text's UTF-8 (after a prompt, so that no space is stripped)."""
    prompt = tokenizer(name).encode("the", add_special_tokens=False).ids
    output = tokenizer(name).encode("the cat sat the cat 日本 👩 é", add_special_tokens=False).ids
    window = detokenizer(name).seed(prompt, keep_special=True)
    text = read(detokenizer(name), window, [output], keep_special=True)
    spelled = b"".join(detokenizer(name).bytes_of(i) for i in output)
    assert spelled.decode("utf-8", "replace").rstrip() == text.rstrip()
