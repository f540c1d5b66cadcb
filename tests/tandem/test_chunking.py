"""Chunks do not depend on how the text was sliced, come at once, and cost what the text's length is."""

import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.chunking import Chunker, ChunkingStrategy, Condensing, Paragraphs, Sentences, StrategyName, Words, strategy

SENTENCES, WORDS, PARAGRAPHS = Sentences(), Words(), Paragraphs()
STRATEGIES: list[Condensing] = [SENTENCES, WORDS, PARAGRAPHS]

letters = st.sampled_from(["a", "b", "É", "3", "。", "你", "你", "い", "न", "म", "😊", "👍🏽", "\u0301", "-", "\u200b"])
marks = st.sampled_from([*".!?…．？。！｡।॥؟۔։።။។", *"\"'”’»›)]}」』）", *"“‘«(「（„", "...", "?!", '."'])
spaces = st.sampled_from([" ", " ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\n\r\n", "\u00a0", "\u3000", "\x1c"])
texts = st.one_of(
    st.lists(letters | marks | spaces, max_size=30).map("".join),
    st.text('a .。"“」', max_size=12),
    st.text("a\r\n", max_size=12),
)
"""Rich in what the strategies decide on, the short alphabets in its combinations."""

each_strategy = pytest.mark.parametrize("chosen", STRATEGIES, ids=["sentences", "words", "paragraphs"])


class Plain:
    """A strategy as a user may write it, that cannot condense."""

    def __init__(self, strategy: ChunkingStrategy) -> None:
        self._strategy = strategy

    def split(self, text: str) -> Sequence[str]:
        return self._strategy.split(text)

    def flush(self, text: str) -> str | None:
        return self._strategy.flush(text)


class Fives:
    """Chunks of five characters, without separators. (Nothing in the text tells where they end.)"""

    def split(self, text: str) -> list[str]:
        return [text[at : at + 5] for at in range(0, len(text) - 4, 5)]

    def flush(self, text: str) -> str | None:
        return text[len(text) - len(text) % 5 :] or None


class Fixed:
    """Returns what it was told to, whatever the text is."""

    def __init__(self, chunks: list[str], last: str | None = None) -> None:
        self._chunks, self._last = chunks, last

    def split(self, text: str) -> list[str]:
        return self._chunks

    def flush(self, text: str) -> str | None:
        return self._last


class Counted:
    """Counts the characters that a strategy is given to read."""

    def __init__(self, strategy: Condensing) -> None:
        self._strategy, self.characters = strategy, 0

    def split(self, text: str) -> Sequence[str]:
        self.characters += len(text)
        return self._strategy.split(text)

    def flush(self, text: str) -> str | None:
        self.characters += len(text)
        return self._strategy.flush(text)

    def condense(self, text: str) -> str:
        self.characters += len(text)
        return self._strategy.condense(text)


def whole(strategy: ChunkingStrategy, text: str) -> list[str]:
    last = strategy.flush(text)
    return [*strategy.split(text), *([] if last is None else [last])]


def gaps(text: str, chunks: Sequence[str]) -> list[str]:
    """What lies before, between and after the chunks, each of which has to be there."""
    found, end = [], 0
    for chunk in chunks:
        at = text.index(chunk, end)
        found.append(text[end:at])
        end = at + len(chunk)
    return [*found, text[end:]]


def slices(text: str, borders: list[int]) -> list[str]:
    inner = sorted(border % (len(text) + 1) for border in borders)
    return [text[a:b] for a, b in zip([0, *inner], [*inner, len(text)], strict=True)]


every = st.sampled_from([*STRATEGIES, *(Plain(strategy) for strategy in STRATEGIES), Fives()])
borders = st.lists(st.integers(0, 1000), max_size=12)


@given(every, texts, borders)
def test_each_delta_brings_at_once_what_it_completes_and_no_slicing_changes_a_chunk(
    chosen: ChunkingStrategy, text: str, borders: list[int]
) -> None:
    chunker, fed, chunks = Chunker(chosen), "", []
    for delta in slices(text, borders):
        fed += delta
        chunks += chunker.feed(delta)
        assert chunks == chosen.split(fed)
    assert chunks + chunker.flush() == whole(chosen, text)
    assert chunker.flush() == []


@given(every, texts)
@example(PARAGRAPHS, "a\n\r\nb")
def test_one_character_at_a_time(chosen: ChunkingStrategy, text: str) -> None:
    chunker, chunks = Chunker(chosen), []
    for at, character in enumerate(text):
        chunks += chunker.feed(character)
        assert chunks == chosen.split(text[: at + 1])
    assert chunks + chunker.flush() == whole(chosen, text)


@given(every, texts, texts)
def test_what_is_decided_stays_decided(chosen: ChunkingStrategy, text: str, more: str) -> None:
    chunks = list(chosen.split(text))
    assert chosen.split(text + more)[: len(chunks)] == chunks


@given(every, texts)
def test_a_flush_needs_the_fragment_only(chosen: ChunkingStrategy, text: str) -> None:
    assert chosen.flush(gaps(text, chosen.split(text))[-1]) == chosen.flush(text)


@given(every, texts, texts)
def test_after_a_flush_the_chunker_is_as_new(chosen: ChunkingStrategy, first: str, second: str) -> None:
    chunker = Chunker(chosen)
    chunker.feed(first)
    chunker.flush()
    assert chunker.feed(second) + chunker.flush() == whole(chosen, second)


@given(st.sampled_from(STRATEGIES), texts, texts)
def test_a_condensed_text_stands_for_the_text(chosen: Condensing, text: str, more: str) -> None:
    fragment = gaps(text, chosen.split(text))[-1]
    short = chosen.condense(fragment)
    assert len(short) <= 3
    assert bool(chosen.split(short + more)) == bool(chosen.split(fragment + more))


@given(st.sampled_from([SENTENCES, WORDS]), texts)
def test_sentences_and_words_leave_out_white_space_and_nothing_else(chosen: Condensing, text: str) -> None:
    chunks = whole(chosen, text)
    assert all(chunk and chunk == chunk.strip() for chunk in chunks)
    assert not "".join(gaps(text, chunks)).strip()


@given(texts)
def test_words_are_what_str_split_finds(text: str) -> None:
    assert whole(WORDS, text) == text.split()
    assert WORDS.split(text) == (text + "x").split()[:-1]


@given(texts)
def test_paragraphs_are_what_lies_between_two_newlines_or_more(text: str) -> None:
    assert whole(PARAGRAPHS, text) == [piece for piece in re.split(r"(?:\r?\n){2,}", text) if piece.strip("\r\n")]


@given(texts.map(str.strip).filter(bool), st.text("\r\n", max_size=5))
def test_the_last_paragraph_is_kept_byte_for_byte(text: str, line_ends: str) -> None:
    last = text.replace("\n", "") + "  "
    kept = re.split(r"(?:\r?\n){2,}", last + line_ends)[0]
    assert whole(PARAGRAPHS, last + line_ends)[0] == kept


def naive_ends(text: str) -> list[int]:
    """Where sentences end, by the rule as it is told, character by character."""
    ends: list[int] = []
    ended: str | None = None
    for at, character in enumerate(text):
        closing = "\"'”’»›)]}」』）" + ("" if ended == "unspaced" else "“‘«")
        if character in "。！？｡":
            ended = "unspaced"
        elif character in ".!?…．।॥؟۔։።။។":
            ended = ended or "spaced"
        elif ended and character not in closing:
            if ended == "unspaced" or character.isspace():
                ends.append(at)
            ended = None
    return ends


@given(texts)
def test_sentences_end_where_the_rule_says(text: str) -> None:
    ends = naive_ends(text)
    assert SENTENCES.split(text) == [text[a:b].lstrip() for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. It pours.", ["It rains.", "It pours."]),
        ("  Really?!  \n No...\tYes ", ["Really?!", "No...", "Yes"]),
        ("3.14 is e.g. a number", ["3.14 is e.g.", "a number"]),
        ('He said "go." (Now!) [“Stop!”] {‘So.’} so', ['He said "go."', "(Now!)", "[“Stop!”]", "{‘So.’}", "so"]),
        ("„Halt!“ »Nein.« Gut…", ["„Halt!“", "»Nein.«", "Gut…"]),
        ("« Oui. » Non", ["« Oui.", "» Non"]),
        ("Wait…what", ["Wait…what"]),
        ("Wait… what", ["Wait…", "what"]),
        ("你好。再见！！「好？」（好。）嗯", ["你好。", "再见！！", "「好？」", "（好。）", "嗯"]),
        ("他说。“你好。”好", ["他说。", "“你好。”", "好"]),
        ("好?。」. 好", ["好?。」.", "好"]),
        ("好?！)好", ["好?！)", "好"]),
        ("ﾊｲ｡ﾊｲ", ["ﾊｲ｡", "ﾊｲ"]),
        ("３．１４は。", ["３．１４は。"]),
        ("राम है। सीता॥ अब", ["राम है।", "सीता॥", "अब"]),
        ("كيف؟ نعم۔ لا", ["كيف؟", "نعم۔", "لا"]),
        ("Այո։ ոչ", ["Այո։", "ոչ"]),
        ("ሰላም። ደህና፧ አዎ", ["ሰላም።", "ደህና፧", "አዎ"]),
        ("က။ ခ", ["က။", "ခ"]),
        ("ក។ ខ៕ គ", ["ក។", "ខ៕", "គ"]),
        ("Great! 😊 Next.", ["Great!", "😊 Next."]),
        ("A heading\n\nText.", ["A heading\n\nText."]),
        (". . ", [".", "."]),
        (" \n\u3000", []),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert whole(SENTENCES, text) == expected


@pytest.mark.parametrize("text", ["It rains.", "It rains.)", "你好。", "你好。」", "!?"])
def test_a_sentence_at_the_end_of_the_text_is_not_decided(text: str) -> None:
    assert SENTENCES.split(text) == []
    assert SENTENCES.flush(text) == text


@pytest.mark.parametrize(
    ("text", "complete", "last"),
    [
        ("a\n\nb", ["a"], "b"),
        ("a\r\n\r\nb", ["a"], "b"),
        ("a\n\r\nb", ["a"], "b"),
        ("a\r\n\n\n\r\nb", ["a"], "b"),
        ("a\n\n", ["a"], None),
        ("a\n", [], "a\n"),
        ("a\n\r", [], "a\n\r"),
        ("a\n\n\r", ["a"], None),
        ("a\n\n\rb", ["a"], "\rb"),
        ("a\n\rb", [], "a\n\rb"),
        ("a\n\r\r\nb", [], "a\n\r\r\nb"),
        ("\n\n\na", [], "a"),
        ("\na\n\n", ["\na"], None),
        ("\n", [], None),
        ("\r\r\n\n\r\r\n\na", [], "a"),
        ("a \n\n  b \n", ["a "], "  b \n"),
        ("a\n \nb", [], "a\n \nb"),
        ("a\n\n \n\nb\n\n\t", ["a", " ", "b"], "\t"),
    ],
)
def test_paragraphs(text: str, complete: list[str], last: str | None) -> None:
    assert PARAGRAPHS.split(text) == complete
    assert PARAGRAPHS.flush(text) == last


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([""], "Fixed.split returned an empty chunk"),
        (["one", ""], "Fixed.split returned an empty chunk"),
        (["One"], "Fixed.split returned the chunk 'One', .* after the chunks before it: 'one two'"),
        (["two", "one"], "Fixed.split returned the chunk 'one', .*: ''"),
        (["one", "one"], "Fixed.split returned the chunk 'one', .*: ' two'"),
        (["one t", "two"], "Fixed.split returned the chunk 'two', .*: 'wo'"),
    ],
)
def test_a_strategy_that_misbehaves_is_told_so(chunks: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Chunker(Fixed(chunks)).feed("one two")


@pytest.mark.parametrize(("last", "message"), [("", "an empty chunk"), ("three", "the chunk 'three'")])
def test_a_last_chunk_is_checked_too(last: str, message: str) -> None:
    chunker = Chunker(Fixed([], last))
    chunker.feed("one two")
    with pytest.raises(ValueError, match=f"Fixed.flush returned {message}"):
        chunker.flush()


def test_a_message_shows_the_beginning_of_a_long_text() -> None:
    with pytest.raises(ValueError, match=r"'z', .*: 'x{80}'…") as raised:
        Chunker(Fixed(["z"])).feed("x" * 1000)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(("name", "kind"), [("sentence", Sentences), ("word", Words), ("paragraph", Paragraphs)])
def test_strategies_have_names(name: StrategyName, kind: type) -> None:
    assert isinstance(strategy(name), kind)


def test_a_strategy_stands_for_itself() -> None:
    own = Fives()
    assert strategy(own) is own


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'line'; take one of 'sentence', 'word', 'paragraph'"):
        strategy("line")  # type: ignore[arg-type]


NOTHING_ENDS = ["x", ".", " ", "\n", "\r\n", "\r", "\n\r", ")", ".)", ".“", ". ", ") ", "。", "。」", "。“", "a\n", "\n\na", "你"]
endless = pytest.mark.parametrize("unit", NOTHING_ENDS, ids=ascii)


@each_strategy
@endless
@pytest.mark.parametrize("start", ["", "a", ".", "。"])
def test_a_stream_is_read_a_fixed_number_of_times(chosen: Condensing, unit: str, start: str) -> None:
    counted = Counted(chosen)
    chunker = Chunker(counted)
    text = start + unit * 2000 + "x. \n\n"
    for character in text:
        chunker.feed(character)
    chunker.flush()
    assert counted.characters < 16 * len(text)


@each_strategy
@endless
@pytest.mark.timeout(60)
def test_a_strategy_reads_a_long_text_in_one_go(chosen: Condensing, unit: str) -> None:
    """(It takes a fraction of a second; one that goes back again and again would take minutes.)"""
    text = unit * (300_000 // len(unit))
    chunks = Chunker(chosen).feed(text)
    assert chunks == chosen.split(text)
    assert len(chosen.condense(gaps(text, chunks)[-1])) <= 3


def test_a_fragment_grows_without_being_copied() -> None:
    def seconds(length: int) -> float:
        chunker, start = Chunker(WORDS), time.process_time()
        for _ in range(length):
            chunker.feed("x")
        assert chunker.flush() == ["x" * length]
        return time.process_time() - start

    # Four times the text takes 4 times as long, or 16 times where each delta copies; one quiet moment is enough.
    assert any(seconds(400_000) < 8 * seconds(100_000) for _ in range(5))
