"""Text to token ids."""

from dataclasses import dataclass

from tokenizers import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """`added`: 1 for what the tokenizer put around the text by itself. `offsets`: each token's span in the text, in characters;
    None where nobody asked."""

    ids: list[int]
    added: list[int]
    offsets: list[Span] | None = None


def encode(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool, with_offsets: bool = False) -> Encoded:
    # The library's `encode` holds the interpreter's lock all the way, which stops the event loop too (law L10); batches let go.
    batch = tokenizer.encode_batch if with_offsets else tokenizer.encode_batch_fast
    (found,) = batch([text], add_special_tokens=add_special_tokens)
    return Encoded(found.ids, found.special_tokens_mask, found.offsets if with_offsets else None)
