"""Token ids to text, a chunk at a time, with a window that fits into a few hundred bytes of state."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from derender_service.decoders import decoder_for
from derender_service.vocabulary import Vocabulary
from derender_service.window import START, Window


class Detokenizer:
    """One model's ids to text. `size` bounds the ids: see `ModelProfile.vocab_size`.

    Holds tables only: every method is a pure function of its arguments, so any replica can take any chunk.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.vocabulary = Vocabulary(tokenizer, size)
        self._decoder = decoder_for(tokenizer, self.vocabulary.added_tokens)

    def seed(self, prompt_token_ids: Sequence[int] | None, *, keep_special: bool) -> Window:
        """The window before the first output token: the prompt's tail, so that the output goes on where the prompt ends (a
        SentencePiece token keeps its leading space). None or no ids: the output begins a text of its own."""
        if not prompt_token_ids:
            return START
        tail = self.vocabulary.tail(prompt_token_ids, self._decoder.context_tokens, keep_special=keep_special)
        return self._decoder.seed(tail) if tail else START

    def push(self, window: Window, token_ids: Sequence[int], *, keep_special: bool, join_added: bool = False) -> tuple[str, Window]:
        """The text that these ids make complete, and the window to go on with."""
        return self._decoder.push(window, self.vocabulary.tokens(token_ids, keep_special=keep_special), join_added=join_added)

    def push_marked(
        self, window: Window, token_ids: Sequence[int], mark: int, *, keep_special: bool, join_added: bool
    ) -> tuple[str, Window]:
        """Like `push`, of these ids and then `mark`, which has its text even if it is special."""
        tokens = [
            *self.vocabulary.tokens(token_ids, keep_special=keep_special),
            *self.vocabulary.tokens((mark,), keep_special=True),
        ]
        return self._decoder.push(window, tokens, join_added=join_added)

    def finish(self, window: Window) -> str:
        """What is still due at the end of an output; a character that is not complete is dropped."""
        return self._decoder.finish(window)

    def whole(self, token_ids: Sequence[int], *, keep_special: bool) -> str:
        """The text of ids that stand alone."""
        text, window = self.push(START, token_ids, keep_special=keep_special)
        return text + self.finish(window)

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes this id stands for inside a text; special tokens spell themselves."""
        token = self.vocabulary.token(token_id)
        return self._decoder.piece(token) if token else b""
