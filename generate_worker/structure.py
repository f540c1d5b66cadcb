"""Outputs that must have a structure: `structured_outputs` of a request as a grammar that says, token by token, what may come next.

The one thing for which the worker looks at a tokenizer's vocabulary, and only if it is started with `--tokenizer-for-grammar`. What
the parameters mean is vLLM's; the grammars are llguidance's.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, LLTokenizer, grammar_from

from generate_worker.engine.base import Grammar
from model_profile import ModelProfile
from model_profile.formats import detect
from model_profile.reasoning import ReasoningMarks, marks
from protocol.errors import BadRequest

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

JsonObject = dict[str, Any]
PARAM = "sampling_params.structured_outputs"
_QUIET = 0

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = ("additionalProperties", "items", "prefixItems", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contains")


class Structures:
    """Makes grammars for one model. `stop_ids` are the tokens that end an output, once its structure is complete."""

    def __init__(self, profile: ModelProfile, vocab_size: int, stop_ids: Iterable[int]) -> None:
        self._tokenizer = LLTokenizer(profile.tokenizer.to_str(), n_vocab=vocab_size, eos_token=sorted(stop_ids))
        template = profile.chat_template.text if profile.chat_template else None
        self._reasoning = marks(detect(template, profile.tokenizer).reasoning_parser, profile.tokenizer)

    def compile(
        self, wanted: JsonObject, prompt: Sequence[int], resumed: Sequence[int], *, reasoning_ended: bool | None
    ) -> Callable[[], Grammar]:
        """What makes each choice's own grammar. Where the model may reason first, the structure is that of what comes behind;
        `reasoning_ended` None leaves it to the prompt. Raises `BadRequest`. CPU-bound."""
        source = _source(wanted)
        error = LLMatcher.validate_grammar(source, self._tokenizer)
        if error:
            raise BadRequest(f"structured_outputs: {error.strip().splitlines()[0][:500]}", param=PARAM)
        reasoning = self._reasoning
        phase = _WRITING if reasoning is None or reasoning_ended else _phase(reasoning, prompt)
        begun = _Structure(LLMatcher(self._tokenizer, source, log_level=_QUIET), reasoning, phase)
        for place, token_id in enumerate(resumed):
            if not begun.takes(token_id):
                raise BadRequest(
                    f"output_token_ids.{place}: structured_outputs does not allow it", param=f"output_token_ids.{place}"
                )
        return begun.copy


_BEGINNING, _REASONING, _WRITING = "beginning", "reasoning", "writing"
"""A model may reason first, does so, or writes what must have the structure."""


def _phase(reasoning: ReasoningMarks, prompt: Sequence[int]) -> str:
    """By what the assistant's turn, which the prompt opens, begins with."""
    for token_id in reversed(prompt):
        if token_id == reasoning.end:
            return _WRITING
        if token_id == reasoning.start:
            return _REASONING
        if token_id in reasoning.others:
            break
    return _BEGINNING if reasoning.start is not None else _REASONING


@dataclass(slots=True)
class _Structure:
    """A choice's grammar."""

    matcher: LLMatcher
    reasoning: ReasoningMarks | None
    phase: str

    def copy(self) -> "_Structure":
        return _Structure(self.matcher.deep_copy(), self.reasoning, self.phase)

    def allowed(self) -> bytes | None:
        if self.phase == _REASONING:
            return None
        mask: bytes = self.matcher.compute_bitmask()
        if self.phase == _WRITING or self.reasoning is None or self.reasoning.start is None:
            return mask
        with_start = bytearray(mask)
        with_start[self.reasoning.start // 8] |= 1 << self.reasoning.start % 8
        return bytes(with_start)

    def advance(self, token_id: int) -> None:
        self.takes(token_id)

    def takes(self, token_id: int) -> bool:
        """Goes on with a token; false where the structure does not have it."""
        if self.phase == _REASONING:
            assert self.reasoning is not None
            self.phase = _WRITING if token_id == self.reasoning.end else _REASONING
            return True
        if self.phase == _BEGINNING and self.reasoning is not None and token_id == self.reasoning.start:
            self.phase = _REASONING
            return True
        self.phase = _WRITING
        # Complete, and the request lets its output go on behind the end: nothing but the end is allowed there.
        return self.matcher.is_stopped() or self.matcher.consume_token(token_id)


def _source(wanted: JsonObject) -> str:
    given = {name: value for name, value in wanted.items() if value not in (None, False)}
    kinds = [name for name in given if name in _KINDS]
    strange = sorted(given.keys() - _KINDS.keys() - _OPTIONS)
    if strange or len(kinds) != 1:
        problem = f"{strange[0][:60]!r} is not known" if strange else f"give one of {', '.join(_KINDS)}"
        raise BadRequest(f"structured_outputs: {problem}", param=PARAM)
    (kind,) = kinds
    try:
        source: str = _KINDS[kind](given[kind], given)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadRequest(f"structured_outputs: {kind} cannot be read: {error}", param=PARAM) from error
    return source


def _json(schema: Any, options: JsonObject) -> str:
    read = json.loads(schema) if isinstance(schema, str) else schema
    if not isinstance(read, dict | bool):
        raise ValueError("a JSON schema is an object")
    if options.get("disable_additional_properties"):
        read = _closed(read)
    compile_options: JsonCompileOptions = {"whitespace_flexible": not options.get("disable_any_whitespace")}
    if not options.get("disable_any_whitespace"):
        compile_options["whitespace_pattern"] = options.get("whitespace_pattern", _WHITE_SPACE)
    return LLMatcher.grammar_from_json_schema(json.dumps(read), defaults=compile_options)


def _closed(schema: Any) -> Any:
    """A schema whose objects have no properties but those it names."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: _closed(one) for name, one in value.items()}
        if key in _SCHEMAS_BY_NAME and isinstance(value, dict)
        else _closed(value)
        if key in _SCHEMAS
        else value
        for key, value in schema.items()
    }
    return {"additionalProperties": False, **closed} if "properties" in closed or "patternProperties" in closed else closed


def _structural_tag(text: str, options: JsonObject) -> str:
    """Free text, in which each of `triggers` begins one of `structures`: `begin`, what its `schema` says, `end`."""
    read = json.loads(text)
    if "structures" not in read:
        raise ValueError("only the form with `structures` and `triggers` is served")
    from llguidance import StructTag

    tags = []
    for one in read["structures"]:
        trigger = next((trigger for trigger in read["triggers"] if one["begin"].startswith(trigger)), None)
        if trigger is None:
            raise ValueError(f"no trigger begins {one['begin'][:60]!r}")
        tags.append(StructTag(trigger=trigger, begin=one["begin"], grammar=_schema_text(one["schema"]), end=one["end"]))
    return LLMatcher.grammar_from_lark(StructTag.to_grammar(tags, assume_special=False))


def _schema_text(schema: Any) -> Any:
    return json.loads(schema) if isinstance(schema, str) else schema


def _choice(choices: Any, options: JsonObject) -> str:
    if not (isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices)):
        raise ValueError("a list of texts is needed")
    return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(one, ensure_ascii=False) for one in choices))


_KINDS: dict[str, Callable[[Any, JsonObject], str]] = {
    "json": _json,
    "json_object": lambda _, options: _json({"type": "object"}, options),
    "regex": lambda pattern, options: LLMatcher.grammar_from_regex(pattern),
    "choice": _choice,
    "grammar": lambda grammar, options: grammar_from("grammar", grammar),
    "structural_tag": _structural_tag,
}
_WHITE_SPACE = r"[ \n\r\t]{0,64}"
"""Between JSON's parts. Without an end, small models write nothing else any more."""
_OPTIONS = frozenset({"disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"})
