"""Harmony as a grammar: headers lead to bodies, which are reasoning, content, or the arguments of a call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.driver import read
from derender_service.parsers.events import CallStart
from derender_service.parsers.grammar import Choice, Grammar
from derender_service.parsers.harmony.header import MAX_HEADER, ReadHeader
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.names import is_name
from derender_service.parsers.pieces import Mark, pieces
from derender_service.parsers.regions import Body, Channel, Gap, Region
from derender_service.parsers.run import CONTENT, REASONING, REFUSED, Run
from derender_service.parsers.state import State
from derender_service.window import START
from model_profile.harmony_vocabulary import MARKERS

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = (Marker(f"<|{name}|>") for name in ("start", "channel", "message", "constrain"))
_ENDS = tuple(Marker(f"<|{name}|>") for name in ("end", "return", "call"))
_NEXT = (
    *(Step(end, "between") for end in _ENDS),
    Step(_START, "header"),
    Step(_CHANNEL, "header", keep=True),
    *(Step(marker, "between") for marker in (_MESSAGE, _CONSTRAIN)),
)
"""After a body, a second end and stray markers say nothing; a message may begin without its `<|start|>`."""


@dataclass(frozen=True, kw_only=True)
class HeaderRegion(Region):
    """Collects the header's ids up to `<|message|>`, then goes on in the region that they name.

    A header that never gets there is no header: its text is content, unless it says no more than a role or a channel does.
    """

    plain: bool = True
    read: ReadHeader
    assistant: tuple[int, ...]
    tokenizer: Tokenizer
    calling: bool = True

    by_id: ClassVar[bool] = True

    def entered(self, run: Run) -> None:
        run.state.header = ()

    def take(self, run: Run, text: str, at: int) -> int:
        run.state.header += tuple(run.ids)
        if len(run.state.header) > MAX_HEADER:
            self._abandon(run, "between")
        return len(text)

    def mark(self, run: Run, mark: Mark) -> bool:
        state = run.state
        if mark.text == _MESSAGE.text:
            self._begin(run)
        elif mark.text in (_CHANNEL.text, _CONSTRAIN.text):
            state.header = (*(state.header or self.assistant), mark.id)
        elif mark.text == _START.text:
            self._abandon(run, "header")
        else:
            self._abandon(run, "between")
        return True

    def literal(self, run: Run, text: str) -> None:
        pass

    def finish(self, run: Run) -> None:
        self._abandon(run, "between")

    def _begin(self, run: Run) -> None:
        header = self.read(run.state.header or self.assistant)
        run.state.header = ()
        if header.function is not None and self.calling and is_name(header.function):
            run.emit(CallStart(header.function))
            run.enter("call")
        elif header.channel == "analysis" or header.tool:
            run.enter(REASONING)
        else:
            run.enter(CONTENT)

    def _abandon(self, run: Run, to: str) -> None:
        ids, run.state.header = run.state.header, ()
        header, text = self.read(ids) if ids else None, self.tokenizer.decode(ids, skip_special_tokens=True)
        said = text.removeprefix("assistant").removeprefix((header.channel if header else None) or "").strip()
        run.enter(CONTENT)
        if said:
            run.say(text.removeprefix("assistant"))
        run.enter(to)


def harmony_grammar(tokenizer: Tokenizer, read_header: ReadHeader, choice: Choice) -> Grammar:
    """With choice `none` the body of a call is content."""
    assistant = tuple(tokenizer.encode("assistant", add_special_tokens=False).ids)
    header = HeaderRegion(name="header", read=read_header, assistant=assistant, tokenizer=tokenizer, calling=choice != "none")
    ending = (*(step for step in _NEXT if step.to == "header" or step.marker in _ENDS),)
    regions: tuple[Region, ...] = (
        header,
        Channel(name=REASONING, steps=ending, thinking=True),
        Channel(name=CONTENT, steps=ending),
        Channel(name=REFUSED, steps=_NEXT),
        Body(name="call", steps=ending, then="between", always=True),
        Gap(name="between", steps=_NEXT, plain=True),
    )
    marks = {token_id: marker for marker in MARKERS if (token_id := tokenizer.token_to_id(marker)) is not None}
    tokens = frozenset(marks.values())
    closing = frozenset(token_id for token_id, marker in marks.items() if any(marker == end.text for end in _ENDS))
    return Grammar({region.name: region.bound(tokens) for region in regions}, marks, tokens, closing=closing)


def harmony_opening(grammar: Grammar, detokenizer: Detokenizer, prompt_token_ids: Sequence[int] | None) -> State:
    """The state after the prompt's last `<|start|>`: its header, or the body that the output continues."""
    start = next(token_id for token_id, text in grammar.marks.items() if text == _START.text)
    state = State("header")
    ids = prompt_token_ids or ()
    place = next((place for place in range(len(ids) - 1, -1, -1) if ids[place] == start), None)
    if place is None:
        return state
    told, _ = pieces(detokenizer, grammar.marks, START, ids[place + 1 :], keep_special=False, join_added=False)
    return replace(read(grammar, state, told, last=False, types={}).state, calls=0, open=False)
