"""One choice, one chunk on: the pure core that streams and whole answers share."""

from collections.abc import Sequence
from dataclasses import dataclass

from derender_service.detokenizer import Detokenizer
from derender_service.stop_strings import scan
from derender_service.window import Window
from protocol.derender import DerenderContext, DerenderStreamState, GenerateChunkChoice
from protocol.generate import FinishReason, GenerateChoice
from protocol.logprobs import TokenLogprobEntry

LOGPROB_CONTEXT = 4


@dataclass(frozen=True)
class Advance:
    """What a chunk adds to its choice. `token_ids` are those that count: up to the one that completed a stop string.

    `offsets[i]` is where the text of id i begins, in characters of the choice's whole text; it is filled when there are logprobs.
    """

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobEntry] | None
    offsets: list[int]
    finish_reason: FinishReason | None
    stop_reason: int | str | None


def advance(
    detokenizer: Detokenizer,
    eos_token_ids: tuple[int, ...],
    state: DerenderStreamState,
    context: DerenderContext,
    choice: GenerateChunkChoice | GenerateChoice,
) -> tuple[Advance, DerenderStreamState]:
    """Reads the chunk's ids. A stopped state must not come here: nothing may follow its end."""
    ids = choice.token_ids or []
    stops = _stop_ids(eos_token_ids, context)
    # The text of a token that can stop the choice waits until it is known whether it did: until the next id, or the end.
    due = [i for i in state.logprob_context_token_ids[-1:] if i in stops and not context.include_stop_str_in_output]
    unread = [*due, *ids]
    readable = unread[:-1] if _silent(unread, choice, stops, context) else unread
    reader = _Reader(detokenizer, context, choice.finish_reason is not None)
    before = _Position(_window(state), state.held_text, state.token_count - len(due))
    text, after, matched = reader.read(before, readable)
    used = ids
    if matched is not None:
        used = ids[: max(0, reader.tokens_until_match(before, readable) - len(due))]
    entries = choice.logprobs.content[: len(used)] if choice.logprobs and choice.logprobs.content is not None else None
    offsets = reader.offsets(before.window, [*due, *used], state.logprob_text_offset) if entries is not None else []
    step = Advance(
        text=text,
        token_ids=used,
        logprobs=entries,
        offsets=offsets[len(due) :],
        finish_reason=choice.finish_reason if matched is None else FinishReason.STOP,
        stop_reason=_stop_reason(choice, eos_token_ids, context) if matched is None else matched,
    )
    changed = {
        "prev_tokens": [*after.window.context, *after.window.pending],
        "prefix_offset": 0,
        "read_offset": len(after.window.context),
        "logprob_context_token_ids": [*state.logprob_context_token_ids, *used][-LOGPROB_CONTEXT:],
        "logprob_text_offset": state.logprob_text_offset + reader.decoded,
        "token_count": state.token_count + len(used),
        "held_text": after.held,
        "stopped": step.finish_reason is not None,
    }
    return step, state.model_copy(update=changed)


def _stop_ids(eos_token_ids: tuple[int, ...], context: DerenderContext) -> frozenset[int]:
    """Ids that stop a choice of this request: the model's eos ids, unless they are ignored, and the request's own."""
    return frozenset(context.stop_token_ids if context.ignore_eos else (*eos_token_ids, *context.stop_token_ids))


def _stop_reason(
    choice: GenerateChunkChoice | GenerateChoice, eos_token_ids: tuple[int, ...], context: DerenderContext
) -> int | str | None:
    """The worker's, but null for the primary eos also where the worker took it for one stop id among others: vLLM's workers
    without a tokenizer learn it from the request."""
    reason = choice.stop_reason
    is_primary = reason in eos_token_ids[:1] and reason not in context.stop_token_ids
    return None if is_primary else reason


def _silent(
    ids: Sequence[int], choice: GenerateChunkChoice | GenerateChoice, stops: frozenset[int], context: DerenderContext
) -> bool:
    """Whether the last id has no text now: it stopped the choice, or it may yet turn out to have.

    An answer that ends in an ordinary token was stopped by something that left no token.
    """
    if not ids or context.include_stop_str_in_output:
        return False
    last, reason = ids[-1], choice.stop_reason
    if choice.finish_reason is None:
        return last in stops
    return choice.finish_reason is FinishReason.STOP and (last in stops if reason is None else last == reason)


def _window(state: DerenderStreamState) -> Window:
    context = state.prev_tokens[state.prefix_offset : state.read_offset]
    return Window(tuple(context), tuple(state.prev_tokens[state.read_offset :]))


@dataclass(frozen=True)
class _Position:
    window: Window
    held: str
    count: int


class _Reader:
    """Reads ids under one context. `decoded` counts the characters that the last `read` decoded, held ones included."""

    def __init__(self, detokenizer: Detokenizer, context: DerenderContext, last: bool) -> None:
        self._detokenizer, self._context, self._last = detokenizer, context, last
        self.decoded = 0

    def read(self, at: _Position, ids: Sequence[int]) -> tuple[str, _Position, str | None]:
        """The text to send, the position after it, and the stop string that matched."""
        context = self._context
        # Stop strings do not count before min_tokens tokens: that text passes unread.
        exempt = max(0, context.min_tokens - at.count) if context.stop else len(ids)
        passed, window = self._push(at.window, ids[:exempt])
        text, window = self._push(window, ids[exempt:])
        rest = self._detokenizer.finish(window) if self._last else ""
        self.decoded = len(passed) + len(text) + len(rest)
        if not context.stop:
            return passed + text + rest, _Position(window, "", at.count + len(ids)), None
        if len(ids) <= exempt and at.count + len(ids) < context.min_tokens:
            return at.held + passed + rest, _Position(window, "", at.count + len(ids)), None
        found = scan(at.held, text + rest, context.stop, include=context.include_stop_str_in_output)
        held = "" if self._last else found.held
        due = found.text + (found.held if self._last else "")
        return passed + due, _Position(window, held, at.count + len(ids)), found.matched

    def tokens_until_match(self, at: _Position, ids: Sequence[int]) -> int:
        """How many of the ids it takes until a stop string is complete. Asked only when one is, so ids are read one by one here."""
        one_by_one = _Reader(self._detokenizer, self._context, last=False)
        for count, token_id in enumerate(ids, start=1):
            _, at, matched = one_by_one.read(at, [token_id])
            if matched is not None:
                return count
        return len(ids)

    def offsets(self, window: Window, ids: Sequence[int], start: int) -> list[int]:
        offsets: list[int] = []
        for token_id in ids:
            offsets.append(start)
            text, window = self._push(window, [token_id])
            start += len(text)
        return offsets

    def _push(self, window: Window, ids: Sequence[int]) -> tuple[str, Window]:
        context = self._context
        return self._detokenizer.push(window, ids, keep_special=context.keep_special_tokens, join_added=context.join_special_tokens)
