"""What the parser tests share: tokenizers made ready for parsers, and the way from token ids to an answer, chunk by chunk."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.driver import read
from derender_service.parsers.events import Arguments, CallStart, Content, Event, Reasoning
from derender_service.parsers.families import REASONING, TOOLS
from derender_service.parsers.formats import ReasoningFormat, ToolFormat
from derender_service.parsers.grammar import Choice, Grammar, compose
from derender_service.parsers.pieces import Text, pieces
from derender_service.parsers.prompt_tail import opening
from derender_service.parsers.run import Types
from derender_service.parsers.state import State
from derender_service.window import START
from tests.tokenizers import profile

CASES = Path(__file__).parent / "cases"


def given_cases() -> list[dict[str, Any]]:
    with (CASES / "parse-given.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def tokenizer(name: str) -> Tokenizer:
    return profile(name).tokenizer


@cache
def detokenizer(name: str) -> Detokenizer:
    return Detokenizer(tokenizer(name), profile(name).vocab_size)


@cache
def added_tokens(name: str) -> dict[str, int]:
    return {token.content: i for i, token in tokenizer(name).get_added_tokens_decoder().items()}


@cache
def control_ids(name: str) -> frozenset[int]:
    """Added tokens that are no mere white space: what bounds the turns of a prompt."""
    return frozenset(i for text, i in added_tokens(name).items() if text.strip())


def encode(name: str, text: str) -> list[int]:
    """Ids of text in which markers are tokens, as a template's text is encoded."""
    return list(tokenizer(name).encode(text, add_special_tokens=False).ids)


@cache
def _plain(name: str) -> Tokenizer:
    config = json.loads(tokenizer(name).to_str())
    config["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(config))


def spell(name: str, text: str) -> list[int]:
    """Ids of text in which nothing is a marker token, as a model writes what looks like one but is text."""
    return list(_plain(name).encode(text, add_special_tokens=False).ids)


@dataclass(frozen=True)
class Setting:
    """A tokenizer, a pair of formats by name, and what a request says."""

    tokenizer: str
    reasoning: str | None = None
    tools: str | None = None
    choice: Choice = "auto"
    types: Types = field(default_factory=dict)
    named: str = ""

    @property
    def reasoning_format(self) -> ReasoningFormat | None:
        return REASONING[self.reasoning] if self.reasoning else None

    @property
    def tool_format(self) -> ToolFormat | None:
        return TOOLS[self.tools] if self.tools else None

    @property
    def grammar(self) -> Grammar:
        return _grammar(self.tokenizer, self.reasoning, self.tools, self.choice)

    def opening(self, prompt_ids: Sequence[int] | None) -> State:
        name, marks = self.tokenizer, self.grammar.marks
        return opening(self.reasoning_format, marks, control_ids(name), detokenizer(name), prompt_ids)


@cache
def _grammar(name: str, reasoning: str | None, tools: str | None, choice: Choice) -> Grammar:
    formats = REASONING[reasoning] if reasoning else None, TOOLS[tools] if tools else None
    return compose(*formats, choice, added_tokens(name))


@dataclass
class Answer:
    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments, as text."""

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Reasoning(text):
                    self.reasoning += text
                case Content(text):
                    self.content += text
                case CallStart(name, _):
                    self.calls.append((name, ""))
                case Arguments(text):
                    name, before = self.calls[-1]
                    self.calls[-1] = (name, before + text)


@dataclass
class Reading:
    """All that came of an output. `sizes`: bytes of the state's JSON after each chunk."""

    answer: Answer = field(default_factory=Answer)
    events: list[list[Event]] = field(default_factory=list)
    states: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        return [len(json.dumps(state).encode()) for state in self.states]


def parse(
    setting: Setting, chunks: Sequence[Sequence[int]], prompt_ids: Sequence[int] | None = (), *, ended: bool = True
) -> Reading:
    """Reads chunks as a service does: all that is left between two of them is the window and the state as JSON."""
    decoder, grammar = detokenizer(setting.tokenizer), setting.grammar
    state = setting.opening(prompt_ids)
    window = decoder.seed(prompt_ids, keep_special=True) if prompt_ids else START
    reading = Reading()
    for number, chunk in enumerate(chunks, 1):
        last = ended and number == len(chunks)
        found, window = pieces(decoder, grammar.marks, window, chunk, keep_special=False, join_added=False)
        if last and (due := decoder.finish(window)):
            found.append(Text(due, ()))
        read_on = read(grammar, state, found, last=last, types=setting.types, named=setting.named)
        dumped = json.dumps(read_on.state.dump())
        state = State.load(json.loads(dumped))
        reading.events.append(read_on.events)
        reading.answer.add(read_on.events)
        reading.states.append(json.loads(dumped))
    return reading


def sized(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Chunks of this many ids; one empty chunk for an empty output."""
    return [ids[at : at + size] for at in range(0, len(ids), size)] or [[]]
