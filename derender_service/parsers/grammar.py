"""A reasoning format and a tool format as one grammar, for one tokenizer and one way of choosing tools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from derender_service.parsers.codecs.json_call import JsonCalls
from derender_service.parsers.formats import Ids, ReasoningFormat, ToolFormat
from derender_service.parsers.markers import Marker, Step
from derender_service.parsers.regions import Calls, Channel, Delimited, NamedBody, Peek, Region
from derender_service.parsers.run import CONTENT, REASONING, REFUSED, REFUSED_THOUGHT

START, THINKING, ANSWER = "start", "thinking", "answer"
"""Where an output begins: the prompt neither opened nor closed reasoning; it opened it; it closed it, or there is none."""

Choice = Literal["none", "auto", "required", "named"]


@dataclass(frozen=True)
class Grammar:
    """`regions` by name. `marks`: the marker tokens, text by id, and `tokens` their texts; other markers are text. `closing`:
    ids that are read even where they stop the choice, since they have no text in any region."""

    regions: Mapping[str, Region]
    marks: Mapping[int, str]
    tokens: frozenset[str]
    ids: Ids = "derived"
    closing: frozenset[int] = frozenset()


def compose(
    reasoning: ReasoningFormat | None, tools: ToolFormat | None, choice: Choice, added_tokens: Mapping[str, int]
) -> Grammar:
    """`added_tokens`: the tokenizer's, id by text. A marker that is one of them is a token, any other is text.

    With choice `none` calls are not looked for; their markers are text of the answer, whatever tokens they are.
    """
    calling = tools if choice != "none" else None
    regions = {region.name: region for region in _regions(reasoning, calling, choice)}
    every = (*_reasoning_markers(reasoning), *(_tool_markers(tools) if tools else ()))
    # A single character, such as the line break that ends a name, is text even where a tokenizer has added it.
    marks = {added_tokens[m.text]: m.text for m in every if len(m.text) > 2 and m.text in added_tokens}
    tokens = frozenset(marks.values())
    bound = {name: region.bound(tokens) for name, region in regions.items()}
    return Grammar(bound, marks, tokens, tools.ids if tools else "derived")


def _regions(reasoning: ReasoningFormat | None, tools: ToolFormat | None, choice: Choice) -> Iterator[Region]:
    entry = tools.entry if tools else ()
    thinking = _thinking_steps(reasoning)
    ends = tuple(Step(end, CONTENT, stray=True) for end in reasoning.ends) if reasoning else ()
    again = tuple(Step(step.marker, step.to, stray=True) for step in thinking)
    closing = (Step(reasoning.wrap[1], CONTENT),) if reasoning and reasoning.wrap else ()
    content = (*again, *ends, *closing, *entry, *(tools.loose if tools else ()))
    strays = tuple(Step(marker, CONTENT, stray=True) for marker in _tool_markers(tools)) if tools else ()

    yield Peek(name=START, plain=True, steps=thinking, then=ANSWER)
    yield Peek(name=ANSWER, plain=True, steps=(*_opening(reasoning), *_bare(tools, choice)), then=CONTENT)
    yield Channel(name=CONTENT, steps=(*strays, *content))
    yield Channel(name=REFUSED, steps=content)
    if reasoning:
        yield Peek(name=THINKING, plain=True, steps=thinking, then=REASONING, thinking=True)
        done = tuple(Step(end, ANSWER) for end in reasoning.ends)
        lost = tuple(Step(step.marker, REASONING, stray=True) for step in (*strays, *again))
        yield Channel(name=REASONING, steps=(*lost, *done, *entry), thinking=True)
        yield Channel(name=REFUSED_THOUGHT, steps=(*done, *entry), thinking=True)
        if reasoning.label:
            yield Peek(name="label", plain=True, steps=(Step(reasoning.label, REASONING),), then=REASONING, thinking=True)
    if tools:
        yield from tools.regions
    if tools and choice in ("required", "named"):
        yield Calls(name="required", reader_type=JsonCalls, then=CONTENT)
        yield NamedBody(name="named", then=CONTENT)


def _thinking_steps(reasoning: ReasoningFormat | None) -> tuple[Step, ...]:
    if reasoning is None:
        return ()
    return tuple(Step(start, "label" if reasoning.label else REASONING) for start in reasoning.starts)


def _opening(reasoning: ReasoningFormat | None) -> tuple[Step, ...]:
    return (Step(reasoning.wrap[0], CONTENT),) if reasoning and reasoning.wrap else ()


def _bare(tools: ToolFormat | None, choice: Choice) -> tuple[Step, ...]:
    """A demanded call may be written as a structured output instead of in the family's way: as vLLM constrains it, a JSON list of
    calls for `required`, the arguments alone for a named function."""
    if tools is None:
        return ()
    demanded = {"required": (Step(Marker("["), "required", keep=True),), "named": (Step(Marker("{"), "named", keep=True),)}
    bare = (*demanded.get(choice, ()), *tools.bare)
    # A marker that begins as these do must not be taken for one of them.
    return (*bare, *(step for step in tools.entry if step.marker.text.startswith(tuple(other.marker.text for other in bare))))


def _reasoning_markers(reasoning: ReasoningFormat | None) -> tuple[Marker, ...]:
    return (*reasoning.starts, *reasoning.ends, *(reasoning.wrap or ())) if reasoning else ()


def _tool_markers(tools: ToolFormat) -> tuple[Marker, ...]:
    steps = (*tools.entry, *tools.loose, *tools.bare, *(step for region in tools.regions for step in region.steps))
    delimiters = (region.delimiter for region in tools.regions if isinstance(region, Delimited))
    return tuple(dict.fromkeys((*(step.marker for step in steps if not step.keep), *delimiters)))
