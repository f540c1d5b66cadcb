"""One choice, one chunk on: the pure core that streams and whole answers share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derender_service.calls import CallPart, parts
from derender_service.parsers.events import Content, Event, Reasoning
from derender_service.sources import GrammarSource, Place, Source, Stretch
from derender_service.stop_strings import Held, screen
from protocol.derender import DerenderContext, DerenderStreamState, GenerateChunkChoice
from protocol.generate import FinishReason, GenerateChoice
from protocol.logprobs import TokenLogprobEntry

LOGPROB_CONTEXT = 4
Choice = GenerateChunkChoice | GenerateChoice


@dataclass(frozen=True)
class Advance:
    """What a chunk adds to its choice. `token_ids` are those that count: up to the one that completed a stop string.

    `offsets[i]` is where the text of id i begins, in characters of the choice's whole text; it is filled when there are
    logprobs and the text is not parsed. `called`: the choice has made tool calls, in this chunk or before.
    """

    content: str
    reasoning: str
    calls: list[CallPart]
    called: bool
    token_ids: list[int]
    logprobs: list[TokenLogprobEntry] | None
    offsets: list[int]
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    reasoning_tokens: int


@dataclass(frozen=True)
class Begun:
    """A choice in the middle: what reads it, where that stands, the ids that are read even where they stop the choice."""

    source: Source
    place: Place
    closing: frozenset[int] = frozenset()


def advance(
    begun: Begun,
    eos_token_ids: tuple[int, ...],
    state: DerenderStreamState,
    context: DerenderContext,
    choice: Choice,
    *,
    last: bool,
) -> tuple[Advance, DerenderStreamState, Place]:
    """Reads the chunk's ids. A stopped state must not come here: nothing may follow its end. `last`: nothing will.

    The state that comes back is complete but for what the source keeps of its place (see `states.saved`).
    """
    ids = choice.token_ids or []
    stops = _stop_ids(eos_token_ids, context) - begun.closing
    waits = begun.source.divisible and not context.include_stop_str_in_output
    # The text of a token that can stop the choice waits until it is known whether it did: until the next id, or the end.
    due = [i for i in state.logprob_context_token_ids[-1:] if i in stops] if waits else []
    unread = [*due, *ids]
    silent = (last or waits) and _silent(unread, choice, stops, begun, context)
    readable = [*(unread[:-1] if silent else unread), *(_stopped_by(choice, eos_token_ids, begun.closing) if last else ())]
    reader = _Reader(_until_its_end(begun.source, choice), context, last)
    before = _Position(begun.place, Held(state.held_text, state.held_reasoning), state.token_count - len(due))
    read = reader.read(before, readable)
    used, reasoning = ids, read.reasoning
    if read.matched is not None:
        count, reasoning = reader.until_match(before, readable)
        used = ids[: max(0, count - len(due))]
    entries = choice.logprobs.content[: len(used)] if choice.logprobs and choice.logprobs.content is not None else None
    parsed = begun.place.parse is not None or not begun.source.divisible
    offsets = reader.offsets(before.place, [*due, *used], state.logprob_text_offset) if entries is not None and not parsed else []
    calls, count = parts(read.events, state.tool_call_count)
    reasoning_tokens = state.reasoning_tokens + reasoning
    step = Advance(
        content="".join(event.text for event in read.events if isinstance(event, Content)),
        reasoning="".join(event.text for event in read.events if isinstance(event, Reasoning)),
        calls=[call for call in calls if call.index == 0 or not context.single_call],
        called=count > 0,
        token_ids=used,
        logprobs=entries,
        offsets=offsets[len(due) :],
        finish_reason=choice.finish_reason if read.matched is None else FinishReason.STOP,
        stop_reason=_stop_reason(choice, eos_token_ids, context) if read.matched is None else read.matched,
        reasoning_tokens=reasoning_tokens,
    )
    after = read.position
    changed = {
        "prev_tokens": [*after.place.window.context, *after.place.window.pending],
        "prefix_offset": 0,
        "read_offset": len(after.place.window.context),
        "logprob_context_token_ids": [*state.logprob_context_token_ids, *used][-LOGPROB_CONTEXT:],
        "logprob_text_offset": state.logprob_text_offset + read.characters,
        "token_count": state.token_count + len(used),
        "reasoning_tokens": reasoning_tokens,
        "tool_call_count": count,
        "tools_streamed": count > 0,
        "held_text": after.held.text,
        "held_reasoning": after.held.reasoning,
        "stopped": step.finish_reason is not None,
    }
    return step, state.model_copy(update=changed), after.place


def _stop_ids(eos_token_ids: tuple[int, ...], context: DerenderContext) -> frozenset[int]:
    """Ids that stop a choice of this request: the model's eos ids, unless they are ignored, and the request's own."""
    return frozenset(context.stop_token_ids if context.ignore_eos else (*eos_token_ids, *context.stop_token_ids))


def _stop_reason(choice: Choice, eos_token_ids: tuple[int, ...], context: DerenderContext) -> int | str | None:
    """The worker's, but null for the primary eos also where the worker took it for one stop id among others: vLLM's workers
    without a tokenizer learn it from the request."""
    reason = choice.stop_reason
    is_primary = reason in eos_token_ids[:1] and reason not in context.stop_token_ids
    return None if is_primary else reason


def _silent(ids: Sequence[int], choice: Choice, stops: frozenset[int], begun: Begun, context: DerenderContext) -> bool:
    """Whether the last id has no text now: it stopped the choice, or it may yet turn out to have.

    An answer that ends in an ordinary token was stopped by something that left no token. A token that render named to the worker
    because it is a stop string is read like any other: the string is found in the text.
    """
    if not ids or context.include_stop_str_in_output or ids[-1] in begun.closing:
        return False
    last, reason = ids[-1], choice.stop_reason
    if choice.finish_reason is None:
        return last in stops
    if last not in stops and begun.source.detokenizer.bytes_of(last).decode(errors="replace") in context.stop:
        return False
    return choice.finish_reason is FinishReason.STOP and (last in stops if reason is None else last == reason)


def _until_its_end(source: Source, choice: Choice) -> Source:
    """The source, told whether the model itself ends the output: then what lacks but an end marker is whole."""
    ended = choice.finish_reason is FinishReason.STOP and not isinstance(choice.stop_reason, str)
    return replace(source, ended=True) if ended and isinstance(source, GrammarSource) else source


def _stopped_by(choice: Choice, eos_token_ids: tuple[int, ...], closing: frozenset[int]) -> list[int]:
    """The marker that ended the choice, to be read again: some workers leave it out of the ids, and a second end says nothing."""
    if choice.finish_reason is not FinishReason.STOP:
        return []
    reasons = eos_token_ids[:1] if choice.stop_reason is None else (choice.stop_reason,)
    return [reason for reason in reasons if isinstance(reason, int) and reason in closing]


@dataclass(frozen=True)
class _Position:
    place: Place
    held: Held
    count: int


@dataclass(frozen=True)
class _Read:
    """`events` are to be sent; `characters` were decoded, held ones included; `matched` is the stop string that was found."""

    events: list[Event]
    position: _Position
    characters: int
    reasoning: int
    matched: str | None = None


class _Reader:
    """Reads ids under one context, and looks for its stop strings."""

    def __init__(self, source: Source, context: DerenderContext, last: bool) -> None:
        self._source, self._context, self._last = source, context, last

    def read(self, at: _Position, ids: Sequence[int]) -> _Read:
        context = self._context
        if not context.stop:
            stretch = self._source.read(at.place, ids, last=self._last)
            return _Read(stretch.events, replace(at, place=stretch.place, count=at.count + len(ids)), *_counts(stretch))
        # Stop strings do not count before min_tokens tokens: that text passes unread.
        exempt = max(0, context.min_tokens - at.count)
        if not exempt:
            return self._screened(at, ids)
        if not self._source.divisible:
            exempt = len(ids)
        ends_early = at.count + len(ids) < context.min_tokens or not self._source.divisible
        passed = self._source.read(at.place, ids[:exempt], last=self._last and ends_early)
        events = [*screen(at.held, (), (), include=False, last=True).events, *passed.events]
        position = _Position(passed.place, Held(), at.count + len(ids[:exempt]))
        if ends_early:
            return _Read(events, position, *_counts(passed))
        rest = self._screened(position, ids[exempt:])
        characters, reasoning = _counts(passed)
        return replace(
            rest, events=[*events, *rest.events], characters=characters + rest.characters, reasoning=reasoning + rest.reasoning
        )

    def until_match(self, at: _Position, ids: Sequence[int]) -> tuple[int, int]:
        """How many of the ids it takes until a stop string is complete, and how many of these are reasoning. Asked only when one
        is: the half of the ids that holds its end is halved again."""
        if not self._source.divisible:
            return len(ids), self.read(at, ids).reasoning
        reader = _Reader(self._source, self._context, last=False)
        count, reasoning = 0, 0
        while len(ids) > 1:
            half = len(ids) // 2
            read = reader.read(at, ids[:half])
            if read.matched is not None:
                ids = ids[:half]
            else:
                at, count, reasoning, ids = read.position, count + half, reasoning + read.reasoning, ids[half:]
        return count + len(ids), reasoning + reader.read(at, ids).reasoning

    def offsets(self, place: Place, ids: Sequence[int], start: int) -> list[int]:
        offsets: list[int] = []
        for token_id in ids:
            offsets.append(start)
            stretch = self._source.read(place, [token_id], last=False)
            place, start = stretch.place, start + stretch.characters
        return offsets

    def _screened(self, at: _Position, ids: Sequence[int]) -> _Read:
        context = self._context
        stretch = self._source.read(at.place, ids, last=self._last)
        found = screen(at.held, stretch.events, context.stop, include=context.include_stop_str_in_output, last=self._last)
        position = _Position(stretch.place, found.held, at.count + len(ids))
        return _Read(found.events, position, *_counts(stretch), found.matched)


def _counts(stretch: Stretch) -> tuple[int, int]:
    return stretch.characters, stretch.reasoning or 0
