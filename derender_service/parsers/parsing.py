"""The formats of one served model: grammars for its tokenizer, by how a request chooses its tools."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.families import REASONING, TOOLS
from derender_service.parsers.formats import ReasoningFormat, ToolFormat
from derender_service.parsers.grammar import Choice, Grammar, compose
from derender_service.parsers.harmony.grammar import harmony_grammar, harmony_opening
from derender_service.parsers.harmony.header import Headers
from derender_service.parsers.plugins import Plugin, plugins
from derender_service.parsers.prompt_tail import opening
from derender_service.parsers.state import State
from model_profile.harmony_vocabulary import harmony_encoding

F = TypeVar("F")

CHOICES: tuple[Choice, ...] = ("none", "auto", "required", "named")
HARMONY = ("openai_gptoss", "openai")


class UnknownParser(ValueError):
    """A parser flag names none that there is."""


class Parsing(Protocol):
    """`name` says which formats; a state of another name is not read. `calls`: whether tool calls are looked for at all; `typed`:
    whether their parameters need the tools' schemas."""

    name: str
    calls: bool
    typed: bool


@dataclass(frozen=True)
class Declared(Parsing):
    """Formats that are declared as grammars: states are checkpoints."""

    name: str
    calls: bool
    typed: bool
    grammars: Mapping[Choice, Grammar]
    reasoning: ReasoningFormat | None
    control_ids: Collection[int]
    harmony: bool = False

    def open(self, detokenizer: Detokenizer, choice: Choice, prompt_token_ids: Sequence[int] | None) -> State:
        """The state before the first output id, told by the prompt's end."""
        grammar = self.grammars[choice]
        if self.harmony:
            return harmony_opening(grammar, detokenizer, prompt_token_ids)
        return opening(self.reasoning, grammar.marks, self.control_ids, detokenizer, prompt_token_ids)


@dataclass(frozen=True)
class Plugged(Parsing):
    """A parser of code, that only knows how to go on from the start: states are histories, which are replayed."""

    name: str
    calls: bool
    plugin: Plugin
    typed: bool = False


def parsing_for(tokenizer: Tokenizer, reasoning_parser: str | None, tool_call_parser: str | None) -> Declared | Plugged | None:
    """None when neither is named. Raises `UnknownParser`, or `BrokenModel` where harmony is asked of another tokenizer."""
    if reasoning_parser is None and tool_call_parser is None:
        return None
    name = f"{reasoning_parser or 'none'}+{tool_call_parser or 'none'}"
    if {reasoning_parser, tool_call_parser} & set(HARMONY):
        return _harmony(name, tokenizer, reasoning_parser, tool_call_parser)
    known = plugins()
    for parser in (reasoning_parser, tool_call_parser):
        plugin = known.get(parser or "")
        if isinstance(plugin, Plugin):
            if {reasoning_parser, tool_call_parser} - {parser, None}:
                raise UnknownParser(f"{parser} is a plug-in that reads whole outputs: it cannot be used beside another parser")
            return Plugged(name, tool_call_parser is not None, plugin)
    of_code = _of_type(known, Plugin)
    reasoning = _format(
        reasoning_parser, {**REASONING, **_of_type(known, ReasoningFormat)}, "reasoning", ["openai_gptoss", *of_code]
    )
    tools = _format(tool_call_parser, {**TOOLS, **_of_type(known, ToolFormat)}, "tool-call", ["openai", *of_code])
    added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    return Declared(
        name,
        calls=tools is not None,
        typed=tools is not None and tools.typed,
        grammars={choice: compose(reasoning, tools, choice, added) for choice in CHOICES},
        reasoning=reasoning,
        control_ids=frozenset(token_id for text, token_id in added.items() if text.strip()),
    )


def _harmony(name: str, tokenizer: Tokenizer, reasoning_parser: str | None, tool_call_parser: str | None) -> Declared:
    if reasoning_parser not in ("openai_gptoss", None) or tool_call_parser not in ("openai", None):
        raise UnknownParser(f"{name}: harmony is one format, its parsers openai_gptoss and openai go with no others")
    headers = Headers(tokenizer, harmony_encoding(tokenizer))
    calls = tool_call_parser is not None
    grammars = {choice: harmony_grammar(tokenizer, headers, choice if calls else "none") for choice in CHOICES}
    return Declared(name, calls, False, grammars, None, (), harmony=True)


def _format(name: str | None, known: Mapping[str, F], kind: str, apart: Collection[str]) -> F | None:
    if name is None:
        return None
    if name not in known:
        raise UnknownParser(f"no {kind} parser is called {name!r}; there are {', '.join(sorted({*known, *apart}))}, or none")
    return known[name]


def _of_type(known: Mapping[str, object], kind: type[F]) -> dict[str, F]:
    return {name: value for name, value in known.items() if isinstance(value, kind)}
