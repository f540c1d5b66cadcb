"""From token ids to token strings: the first half of `Tokenizer.decode`, with the ids that have no text left out."""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer


class Vocabulary:
    """Looks ids up once and remembers them, so that a chunk costs a list access a token.

    An id below `size` that the tokenizer does not know (models pad their embeddings) has no token, and no text.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.size = size
        self._tokenizer = tokenizer
        self._known: list[str | None] = [None] * size
        self.special_ids = frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        self.added_tokens = frozenset(token.content for token in tokenizer.get_added_tokens_decoder().values())

    def token(self, token_id: int) -> str:
        """The token's string in the vocabulary's own spelling, "" for an id without one."""
        known = self._known[token_id]
        if known is None:
            known = self._known[token_id] = self._tokenizer.id_to_token(token_id) or ""
        return known

    def tokens(self, token_ids: Iterable[int], *, keep_special: bool) -> list[str]:
        """The strings of the ids that make text: all, or all but the special ones."""
        skipped = () if keep_special else self.special_ids
        return [token for i in token_ids if i not in skipped and (token := self.token(i))]

    def tail(self, token_ids: Sequence[int], count: int, *, keep_special: bool) -> list[str]:
        """The last `count` strings that `tokens` would give, without looking at the rest."""
        found: list[str] = []
        for token_id in reversed(token_ids):
            if len(found) == count:
                break
            found += self.tokens((token_id,), keep_special=keep_special)
        return found[::-1]
