"""What the derender tests share: tokenizers by name, texts, ids and cuts to draw from, and an independent reading of a whole."""

from functools import cache
from itertools import product

from hypothesis import strategies as st
from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from tests.derender.small_tokenizers import SMALL
from tests.tokenizers import REAL, profile

TABLED = ("smollm2", *REAL, "tiny")
EVERY = (*TABLED, *SMALL)

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    " leading and trailing ",
    "日本語のテキスト、中文字符，한국어",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 🇨🇭",
    "e\u0301 n\u0303 combining \u0327\u0301 marks",
    "שלום עולם مرحبا بالعالم",
    "def f(x):\n\treturn {'a': [1, 2.5e-3]}  # ok\r\n\r\n",
    "tab\tbell\x07 escape\x1b nul\x00 del\x7f",
    "\ufeffbom \ufffd replacement \u2028 separator",
    '"quoted" — “curly” it\'s well-known…',
    "a" * 40 + " " * 20 + "\n" * 5,
    "नमस्ते दुनिया བོད་ཡིག ተማሪ",
)
pieces = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
texts = st.lists(pieces, max_size=5).map("".join)


@cache
def tokenizer(name: str) -> Tokenizer:
    return SMALL[name]() if name in SMALL else profile(name).tokenizer


@cache
def detokenizer(name: str) -> Detokenizer:
    own = tokenizer(name)
    return Detokenizer(own, max(own.get_vocab().values()) + 1)


@cache
def special_ids(name: str) -> tuple[int, ...]:
    return tuple(i for i, token in tokenizer(name).get_added_tokens_decoder().items() if token.special)


@cache
def byte_ids(name: str) -> tuple[int, ...]:
    """Ids of tokens that stand for single bytes, or (byte-level) for parts of characters."""
    own = tokenizer(name)
    fallback = [own.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    if any(i is not None for i in fallback):
        return tuple(i for i in fallback if i is not None)
    found = [i for text in ("日本", "👩", "é") for i in own.encode(text, add_special_tokens=False).ids]
    single = [i for i in range(min(600, own.get_vocab_size())) if own.decode([i]) == "\ufffd"]
    return tuple(found + single)


@st.composite
def ids(draw: st.DrawFn, name: str, *, max_size: int = 24) -> list[int]:
    """Ids of real text, ids at random, parts of characters and special ids, mixed."""
    size = detokenizer(name).vocabulary.size
    part = st.one_of(
        texts.map(lambda text: tokenizer(name).encode(text, add_special_tokens=False).ids),
        st.lists(st.integers(0, size - 1), max_size=8),
        *([st.lists(st.sampled_from(byte_ids(name)), max_size=8)] if byte_ids(name) else []),
        *([st.lists(st.sampled_from(special_ids(name)), max_size=3)] if special_ids(name) else []),
    )
    return [i for group in draw(st.lists(part, max_size=4)) for i in group][:max_size]


@st.composite
def cut(draw: st.DrawFn, values: list[int]) -> list[list[int]]:
    """A split of the values into chunks, some of them empty."""
    borders = sorted(draw(st.lists(st.integers(0, len(values)), max_size=12)))
    return [values[a:b] for a, b in zip([0, *borders], [*borders, len(values)], strict=True)]


def whole_text(name: str, token_ids: list[int], *, keep_special: bool = False) -> str:
    """`tokenizer.decode`, without what it makes of a character that the end cuts off.

    Whether the end does is found by trying, so nothing of the code under test is asked.
    """
    own = tokenizer(name)
    shown = [i for i in token_ids if keep_special or i not in special_ids(name)]
    decoded = own.decode(shown, skip_special_tokens=False)
    if "ByteFallback" in str(own.decoder):
        run = bytearray()
        for token_id in reversed(shown):
            token = own.id_to_token(token_id) or ""
            if not (len(token) == 6 and token.startswith("<0x")):
                break
            run.insert(0, int(token[3:5], 16))
        dangling = _dangling(bytes(run))
        return own.decode(shown[: len(shown) - dangling], skip_special_tokens=False) if dangling else decoded
    if "ByteLevel" in str(own.decoder):
        data = b"".join(detokenizer(name).bytes_of(i) for i in shown)
        assert data.decode("utf-8", "replace") == decoded
        return decoded[:-1] if _dangling(data) else decoded
    return decoded


def _dangling(data: bytes) -> int:
    """How many bytes at the end are a good beginning: some bytes after them would make a character of them, by trying."""
    for count in (3, 2, 1):
        tail = data[-count:]
        endings = (bytes(ending) for n in (1, 2, 3) for ending in product((0x80, 0x90, 0xA0, 0xBF), repeat=n))
        if len(tail) == count and any(_is_character(tail + ending) for ending in endings):
            return count
    return 0


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False
