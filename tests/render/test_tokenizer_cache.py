"""Ids out of the cache are the ids of the whole text, tokenized at once; and the cache stays within its bounds."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from render_service import tokenizer_cache as module
from render_service.control_tokens import ControlTokens
from render_service.encoding import TooManyTokens, encode
from render_service.tokenizer_cache import TokenizerCache
from render_service.word_pattern import longest_of
from tests.render.rendering import control_tokens, render_chat, render_completion, renderer, say
from tests.tokenizers import profile

FAMILIES = ("smollm2", "qwen3", "llama3_1", "deepseek_v3", "gemma3", "gptoss", "tiny")
pieces = (
    st.text(max_size=12)
    | st.text(alphabet="ab 1.\n\r'\té日\u0301?_", max_size=30)
    | st.sampled_from(["a line\n", "x = 1;\n", "  indented\n\n", "don't", "日本\n", "}\n}\n"])
)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_cached_ids_are_those_of_the_whole_text(family: str, data: st.DataObject) -> None:
    """Texts that share pieces, one after the other through one small cache, with and without what is put around them (R66)."""
    tokenizer, control = profile(family).tokenizer, control_tokens(family)
    cache = TokenizerCache(tokenizer, control, data.draw(st.sampled_from([300, 2000, 10**6])))
    some = data.draw(st.lists(pieces, min_size=1, max_size=4))
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:6]
    for text in data.draw(st.lists(st.lists(st.sampled_from([*some, *tokens]) | pieces, max_size=8).map("".join), max_size=5)):
        special = data.draw(st.booleans())
        found = cache.encode(text, add_special_tokens=special)
        plain = encode(tokenizer, text, add_special_tokens=special)
        assert (list(found.ids), list(found.added)) == (plain.ids, plain.added)
        assert cache.bytes <= max(300, 10**6)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "tiny"])
def test_real_tokenizers_can_be_cut_at_lines(family: str) -> None:
    assert TokenizerCache(profile(family).tokenizer, control_tokens(family), 10**6)._lines


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("white", [" ", "\n", "\t", " \n"])
def test_no_cut_is_made_behind_a_line_that_ends_in_white_space(family: str, white: str) -> None:
    """Some tokenizers look there at what comes next."""
    text = f"a long first line{white}\nand another, long too{white}\nend"
    cache = TokenizerCache(profile(family).tokenizer, control_tokens(family), 10**6)
    plain = encode(profile(family).tokenizer, text, add_special_tokens=False)
    assert cache.encode(text, add_special_tokens=False).ids == plain.ids


def test_where_text_depends_on_what_is_beside_nothing_is_cut() -> None:
    """A vocabulary of words, told apart by nothing: a line's end and the next letter may be one token."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "\n": 1, "\na": 2, "<x>": 3, "b": 4}, [("\n", "a")]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<x>"])
    cache = TokenizerCache(tokenizer, ControlTokens(tokenizer), 10**6)
    assert cache.usable
    assert not cache._lines


def of_bytes(markers: list[str]) -> Tokenizer:
    """A tokenizer with a token for each byte, and these."""
    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(markers)
    return tokenizer


OVERLAPPING = ("]!p~[", "]~b]", "[e~[", "<x>", "<x>y", "x><")
"""MiniMax's markers, which begin as others end, and more."""


@pytest.mark.parametrize("markers", [*permutations(OVERLAPPING, 2), OVERLAPPING, OVERLAPPING[::-1]], ids=" ".join)
def test_no_piece_grows_together_with_a_marker(markers: tuple[str, ...]) -> None:
    """Pieces that lack a marker's end before others, and its beginning behind them."""
    tokenizer = of_bytes([*markers])
    cache = TokenizerCache(tokenizer, ControlTokens(tokenizer), 1)  # with no room for a piece, so all are tokenized together
    cuts = [(marker[:at], marker[at:]) for marker in markers for at in range(1, len(marker))]
    for (before, _), marker, (_, behind) in product(cuts, markers, cuts):
        text = f"a{before}{marker}{behind}b"
        assert cache.encode(text, add_special_tokens=False).ids == encode(tokenizer, text, add_special_tokens=False).ids


def test_pieces_stand_behind_a_marker_that_no_other_touches() -> None:
    assert ControlTokens(of_bytes(["]!p~[", "]~b]", "[e~["])).one_to_stand_behind() is None
    found = ControlTokens(of_bytes(["]!p~[", "]~b]", "[e~[", "<x>"])).one_to_stand_behind()
    assert found is not None
    assert found[0] == "<x>"


def test_a_tokenizer_that_begins_a_text_in_its_own_way_is_not_cached() -> None:
    tokenizer = Tokenizer(models.WordLevel({"▁a": 0, "a": 1, "<x>": 2, "[U]": 3}, unk_token="[U]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(["<x>"])
    cache = TokenizerCache(tokenizer, ControlTokens(tokenizer), 10**6)
    assert not cache.usable
    assert cache.encode("a<x>a", add_special_tokens=False).ids == [0, 2, 1]


def test_what_was_known_is_not_tokenized_again() -> None:
    told: list[tuple[int, int]] = []
    cache = TokenizerCache(profile("qwen3").tokenizer, control_tokens("qwen3"), 10**6, counted=lambda *pair: told.append(pair))
    cache.encode("<|im_start|>user\nHi<|im_end|>", add_special_tokens=False)
    cache.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    assert told == [(0, 7), (7, 11)]


def test_texts_that_begin_alike_share_their_blocks() -> None:
    told: list[tuple[int, int]] = []
    cache = TokenizerCache(profile("qwen3").tokenizer, control_tokens("qwen3"), 10**7, counted=lambda *pair: told.append(pair))
    text = "".join(f"line {number} of a long text\n" for number in range(5000))
    cache.encode(text, add_special_tokens=False)
    cache.encode(text + "and then a question?", add_special_tokens=False)
    assert told[1][1] < 2 * module.BLOCK
    assert told[1][0] > len(text) - 2 * module.BLOCK


def test_the_latest_used_are_kept() -> None:
    told: list[tuple[int, int]] = []
    cache = TokenizerCache(profile("qwen3").tokenizer, control_tokens("qwen3"), 1000, counted=lambda *pair: told.append(pair))
    for text in ("one", "two", "one", "three", "four", "one"):
        cache.encode(text, add_special_tokens=False)
    assert [known for known, _ in told] == [0, 0, 3, 0, 0, 3]
    for number in range(100):
        cache.encode(f"{number} " * 20, add_special_tokens=False)
        assert cache.bytes <= 1000


def test_a_hopeless_text_is_not_tokenized_to_its_end() -> None:
    text = "".join(f"line {number} of a text\n" for number in range(100_000))
    cache = TokenizerCache(profile("qwen3").tokenizer, control_tokens("qwen3"), 10**7)
    with pytest.raises(TooManyTokens) as caught:
        cache.encode(text, add_special_tokens=False, limit=1000)
    assert 1000 < caught.value.count < 200_000
    whole = encode(profile("qwen3").tokenizer, text[:100_000], add_special_tokens=False).ids
    assert cache.encode(text[:100_000], add_special_tokens=False, limit=len(whole)).ids == whole
    for _ in range(2):
        with pytest.raises(TooManyTokens):
            cache.encode(text[:100_000], add_special_tokens=False, limit=len(whole) - 1)


def test_no_memory_is_no_cache() -> None:
    cache = TokenizerCache(profile("qwen3").tokenizer, control_tokens("qwen3"), 0)
    assert not cache.usable
    assert cache.encode("Hi", add_special_tokens=False).ids == [13048]


def test_parallel_renders_are_what_they_are_alone() -> None:
    """64 at once, chats and completions that share texts, each cut to another length."""
    text = "A line of text.\nAnother one, and so on.\n" * 200
    jobs = [(family, size) for family in ("qwen3", "llama3_1") for size in range(1, 33)]

    def render(job: tuple[str, int]) -> list[list[int]]:
        family, size = job
        own = renderer(family)
        chat = render_chat(own, **say(text, truncate_prompt_tokens=size * 7))["token_ids"]
        return [
            chat,
            render_completion(own, prompt=text, truncate_prompt_tokens=size * 11, truncation_side="right")[0]["token_ids"],
        ]

    with ThreadPoolExecutor(64) as pool:
        together = list(pool.map(render, jobs))
    assert together == [render(job) for job in jobs]
    for (family, size), (chat, completion) in zip(jobs, together, strict=True):
        whole = encode(profile(family).tokenizer, text, add_special_tokens=True).ids
        assert completion == whole[: size * 11]
        assert len(chat) == size * 7


words = st.lists(st.text(alphabet="ab<|", min_size=1, max_size=4), min_size=1, max_size=8)


@given(words, st.text(alphabet="ab<|", max_size=20))
def test_one_expression_finds_the_longest_word(some: list[str], text: str) -> None:
    expected, at = [], 0
    while at < len(text):
        longest = max((word for word in some if text.startswith(word, at)), key=len, default="")
        expected += [(longest, at)] if longest else []
        at += len(longest) or 1
    assert [(match[0], match.start()) for match in re.finditer(longest_of(some), text)] == expected
