"""Small tokenizers whose decoders no table covers: the library decodes them over a window."""

from tokenizers import Tokenizer, decoders, models


def wordpiece() -> Tokenizer:
    """BERT's way: a space before every token but those that begin with ##, and none before punctuation."""
    words = ["[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat", "##ting", ".", ",", "!", "do", "n't", "'", "m", "日", "本"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[UNK]"])
    return tokenizer


def metaspace() -> Tokenizer:
    """T5's way: a leading space is dropped from the first token alone."""
    words = ["<unk>", "</s>", "▁the", "▁cat", "s", "▁", "▁sat", "ting", ".", "▁▁", "▁日本", "é"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def bpe_suffix() -> Tokenizer:
    """The first BPEs' way: a token that ends a word says so, and the last one of a text has no space after it."""
    words = ["<unk>", "the</w>", "ca", "t</w>", "s</w>", "sat</w>", ".</w>", "日", "本</w>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def metaspace_bytes() -> Tokenizer:
    """Byte fallback before Metaspace: both rules at once, in an order that no table covers."""
    words = ["<unk>", "</s>", "▁the", "▁cat", "s", "é", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    steps = [decoders.ByteFallback(), decoders.Metaspace(replacement="▁", prepend_scheme="always")]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def no_decoder() -> Tokenizer:
    """Tokens joined by spaces."""
    words = ["<unk>", "the", "cat", "sat", "."]
    return Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))


SMALL = {
    "wordpiece": wordpiece,
    "metaspace": metaspace,
    "bpe_suffix": bpe_suffix,
    "metaspace_bytes": metaspace_bytes,
    "no_decoder": no_decoder,
}
