"""Harmony as a grammar: headers lead to bodies, which are reasoning, content, or the arguments of a call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.driver import read
from derender_service.parsers.events import Arguments, CallStart
from derender_service.parsers.grammar import Choice, Grammar
from derender_service.parsers.harmony.header import CHANNEL, CONSTRAIN, MESSAGE, START, Ended, Header, Headers
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.pieces import Mark, pieces
from derender_service.parsers.regions import Body, Channel, Region
from derender_service.parsers.run import CONTENT, REASONING, Run, StuckParser
from derender_service.parsers.state import State
from derender_service.window import START as EMPTY
from model_profile.harmony_vocabulary import MARKERS

MAX_IDS, MAX_BYTES = 160, 320
"""Of a header, so that a state has room for it. What is longer is none: a function's name has 256 characters at most."""

_HEADER, _CALL, _REST = "header", "call", "rest"
_CALL_END = "<|call|>"
_ENDS = ("<|end|>", "<|return|>", _CALL_END)


@dataclass(frozen=True, kw_only=True)
class HeaderRegion(Region):
    """From the end of one body to the next: collects ids and text up to `<|message|>`, then goes on in the body that they name.

    Headers that begin without `<|start|>`, and words where a header is due, come here as well. What turns out to be no header word
    is text of the message: reasoning if the header names that channel, else content.
    """

    plain: bool = True
    headers: Headers
    calling: bool
    """Whether calls are looked for; if not, their bodies are content."""

    by_id: ClassVar[bool] = True

    def load(self, saved: dict[str, Any] | None, run: Run) -> None:
        # Readings of headers are kept, so what a client may name one by is bounded.
        if len(run.state.header) > MAX_IDS:
            raise StuckParser(f"a header that has not ended has {MAX_IDS} ids at most")

    def entered(self, run: Run) -> None:
        run.state.header, run.state.word = (), ""

    def take(self, run: Run, text: str, at: int) -> int:
        # Ids that the tokenizer does not know have no text, and the library would not know them either.
        run.state.header += tuple(token_id for token_id in run.ids if self.headers.knows(token_id))
        run.state.word += text
        self._bound(run)
        return len(text)

    def mark(self, run: Run, mark: Mark) -> bool:
        state = run.state
        if mark.text == MESSAGE:
            self._begin(run)
        elif mark.text == START:
            self._end(run, "marker")
            state.header = (mark.id,)
        elif mark.text in _ENDS:
            self._end(run, "marker", called=mark.text == _CALL_END)
        elif mark.text in (CHANNEL, CONSTRAIN):
            state.header = (*state.header, mark.id)
            self._bound(run)
        return True

    def literal(self, run: Run, text: str) -> None:
        pass

    def finish(self, run: Run) -> None:
        self._end(run, "output")

    def _begin(self, run: Run) -> None:
        header = self.headers.read(run.state.header, "message")
        self._say(run, header)
        if header.function is not None and self.calling:
            run.emit(CallStart(header.function))
            run.enter(_CALL)

    def _end(self, run: Run, ended: Ended, *, called: bool = False) -> None:
        """The header ends without a body. It is a call all the same if the model ended it so, or was cut off after the name."""
        header = self.headers.read(run.state.header, ended) if run.state.header else Header()
        self._say(run, header)
        if header.function is not None and self.calling and (called or ended == "output"):
            run.emit(CallStart(header.function))
            run.enter(_CALL)
        if ended != "output":
            run.enter(_HEADER)

    def _bound(self, run: Run) -> None:
        """Words that no header has, or too many of them: the model speaks without one, or without its `<|message|>`."""
        state = run.state
        bounded = len(state.header) <= MAX_IDS and len(state.word.encode()) <= MAX_BYTES
        if not (bounded and self.headers.is_open(state.header, state.word)):
            channel, length = self.headers.lead(state.header)
            self._say(run, Header(channel, stray=state.word[length:]))

    def _say(self, run: Run, header: Header) -> None:
        run.state.header, run.state.word = (), ""
        thinking = header.function is None and (header.channel == "analysis" or header.tool)
        run.enter(REASONING if thinking else CONTENT)
        run.say(header.stray)


@dataclass(frozen=True, kw_only=True)
class CallBody(Body):
    """The arguments of a call, up to an end marker. Within a JSON string any other marker is data."""

    always: bool = True
    then: str = _REST

    def mark(self, run: Run, mark: Mark) -> bool:
        if mark.text not in _ENDS:
            if run.reader.quoted:
                self.literal(run, mark.text)
                return True
            if self.exits.by_token[mark.text].stray:
                return True
        return super().mark(run, mark)


@dataclass(frozen=True, kw_only=True)
class RestOfBody(Region):
    """After the JSON value of a call's arguments: the body goes on up to its end marker, so the arguments are no JSON after all."""

    inside: bool = True

    def take(self, run: Run, text: str, at: int) -> int:
        self.literal(run, text[at:])
        return len(text)

    def literal(self, run: Run, text: str) -> None:
        if text:
            run.emit(Arguments(text))


def harmony_grammar(tokenizer: Tokenizer, headers: Headers, choice: Choice) -> Grammar:
    """With choice `none` the body of a call is content."""
    special = {token_id: token.content for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    known = {token_id: marker for marker in MARKERS if (token_id := tokenizer.token_to_id(marker)) is not None}
    # No special token is text here, also where a request wants to see them: those without a meaning are dropped.
    marks = {**special, **known}
    ends = tuple(Step(Marker(end), _HEADER) for end in _ENDS)
    onwards = (*ends, *(Step(Marker(mark), _HEADER, keep=True) for mark in (START, CHANNEL)))
    strays = tuple(text for text in marks.values() if text not in (*_ENDS, START, CHANNEL))
    tokens = frozenset(marks.values())

    def steps(region: str) -> tuple[Step, ...]:
        return (*onwards, *(Step(Marker(text), region, stray=True) for text in strays))

    regions: tuple[Region, ...] = (
        HeaderRegion(name=_HEADER, headers=headers, calling=choice != "none"),
        Channel(name=REASONING, steps=steps(REASONING), thinking=True),
        Channel(name=CONTENT, steps=steps(CONTENT)),
        CallBody(name=_CALL, steps=steps(_CALL)),
        RestOfBody(name=_REST, steps=steps(_REST)),
    )
    closing = frozenset(token_id for token_id, text in marks.items() if text in _ENDS)
    return Grammar({region.name: region.bound(tokens) for region in regions}, marks, tokens, closing=closing)


def harmony_opening(grammar: Grammar, detokenizer: Detokenizer, prompt_token_ids: Sequence[int] | None) -> State:
    """The state after the prompt's last message: in its header, or in the body that the output continues.

    A prompt that is not known, or has no message, is taken to end as all do that ask for an answer. The arguments of a call that
    the prompt began are content: the call itself is not the output's.
    """
    header = grammar.regions[_HEADER]
    assert isinstance(header, HeaderRegion)
    start = header.headers.opening[0]
    ids = prompt_token_ids or ()
    place = next((place for place in range(len(ids) - 1, -1, -1) if ids[place] == start), None)
    tail = ids[place:] if place is not None else header.headers.opening
    told, _ = pieces(detokenizer, grammar.marks, EMPTY, tail, keep_special=False, join_added=False)
    state = read(grammar, State(_HEADER), told, last=False, types={}).state
    if state.region == _HEADER:
        return State(_HEADER, header=state.header, word=state.word)
    return State(REASONING if state.region == REASONING else CONTENT)
