"""What the harmony tests share: ids of messages, and the way from ids to an answer with the state as JSON between two chunks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.events import Event
from derender_service.parsers.grammar import Choice, Grammar
from derender_service.parsers.harmony.grammar import harmony_grammar, harmony_opening
from derender_service.parsers.harmony.header import Headers
from derender_service.parsers.parsing import CHOICES
from derender_service.parsers.state import State
from derender_service.sources import GrammarSource, Place
from model_profile.harmony_vocabulary import MARKERS, harmony_encoding
from tests.parsers.kit import Answer, encode, spell, tokenizer
from tests.tokenizers import profile

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

NAME = "gptoss"
STATE_LIMIT = 4096
SPECIAL = range(199_998, 200_019)
RETURN, CALL, END, START_ID = 200_002, 200_012, 200_007, 200_006


def ids_of(text: str) -> list[int]:
    """Ids of text in which markers are tokens."""
    return encode(NAME, text)


def spelled(text: str) -> list[int]:
    """Ids of text in which nothing is a marker."""
    return spell(NAME, text)


PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"


@cache
def encoding() -> "HarmonyEncoding":
    return harmony_encoding(tokenizer(NAME))


@cache
def headers() -> Headers:
    return Headers(tokenizer(NAME), encoding())


@cache
def decoder() -> Detokenizer:
    return Detokenizer(tokenizer(NAME), profile(NAME).vocab_size)


@cache
def grammars() -> dict[Choice, Grammar]:
    return {choice: harmony_grammar(tokenizer(NAME), headers(), choice) for choice in CHOICES}


@dataclass
class Read:
    """`reasoning_tokens` as they are counted for the usage; `largest` is the biggest state's JSON, in bytes."""

    answer: Answer = field(default_factory=Answer)
    events: list[Event] = field(default_factory=list)
    reasoning_tokens: int = 0
    largest: int = 0


def read(
    chunks: Sequence[Sequence[int]],
    prompt: Sequence[int] | None = None,
    choice: Choice = "auto",
    *,
    ended: bool = True,
    keep_special: bool = False,
) -> Read:
    """Reads chunks as a service does: all that is left between two of them is the window and the state as JSON."""
    grammar = grammars()[choice]
    source = GrammarSource(decoder(), grammar, {}, "", keep_special, False)
    place = Place(decoder().seed(prompt, keep_special=keep_special), harmony_opening(grammar, decoder(), prompt))
    found = Read()
    for number, chunk in enumerate(chunks, 1):
        stretch = source.read(place, chunk, last=ended and number == len(chunks))
        assert stretch.place.parse is not None
        state = json.dumps(stretch.place.parse.dump())
        place = Place(stretch.place.window, State.load(json.loads(state)))
        found.events += stretch.events
        found.answer.add(stretch.events)
        found.reasoning_tokens += stretch.reasoning or 0
        found.largest = max(found.largest, len(state.encode()))
    return found


def answer(text: str, choice: Choice = "auto", prompt: str | None = None) -> Answer:
    """What is read of this output, markers being tokens; the same whole and id by id, in states that stay small."""
    ids = ids_of(text)
    return answer_of_ids(ids, choice, ids_of(prompt) if prompt is not None else None)


def answer_of_ids(ids: Sequence[int], choice: Choice = "auto", prompt: Sequence[int] | None = None) -> Answer:
    whole = read([ids], prompt, choice)
    for size in (1, 2, 3):
        parts = read([ids[at : at + size] for at in range(0, len(ids), size)] or [[]], prompt, choice)
        assert parts.answer == whole.answer
        assert parts.reasoning_tokens == whole.reasoning_tokens
        assert parts.largest < STATE_LIMIT
    assert_no_marker(whole.answer)
    return whole.answer


def assert_no_marker(found: Answer) -> None:
    """No marker token shows; within a JSON string of arguments it is data. Not for outputs that spell markers by other tokens."""
    for text in (found.reasoning, found.content, *(name for name, _ in found.calls)):
        assert not any(marker in text for marker in MARKERS)


@st.composite
def divided(draw: st.DrawFn, ids: Sequence[int]) -> list[list[int]]:
    """A random split of the ids, with empty chunks among them."""
    borders = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=12)))
    return [list(ids[a:b]) for a, b in pairwise([0, *borders, len(ids)])]
