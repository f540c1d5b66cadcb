"""Law L9 for parsers: any ids give an answer, and a state that no run has left is refused as what it is, or read on from."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from derender_service.parsers.driver import read
from derender_service.parsers.families import REASONING
from derender_service.parsers.pieces import pieces
from derender_service.parsers.run import StuckParser
from derender_service.parsers.state import State
from derender_service.window import START
from tests.parsers.kit import Setting, detokenizer, encode, parse, sized, spell
from tests.parsers.one_call import CALLS, VALUE
from tests.parsers.outputs import FORMATS, TOKENIZERS, WITHOUT_TOKENS, cuts
from tests.parsers.values import every_marker, texts

REFUSALS = (ValidationError, StuckParser)
"""What a caller answers with 400."""
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.floats(allow_nan=False), texts()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=3)),
    max_leaves=5,
)
WORDS = st.sampled_from(
    ("value", "string", "word", "broken", "name", "call", "arguments", "decoded", "raw", '"', "'''", "oA", "\\u", "n")
)


@st.composite
def _settings(draw: st.DrawFn, tools: str) -> Setting:
    name = draw(st.sampled_from((TOKENIZERS.get(tools, "qwen3_marked"), WITHOUT_TOKENS)))
    choice = draw(st.sampled_from(("none", "auto", "required", "named")))
    types = {"f": {"a": draw(st.sampled_from(("s", "ns", "i", "oas", "bf")))}}
    return Setting(name, draw(st.sampled_from((None, *REASONING))), tools, choice, types, "f" if choice == "named" else "")


@st.composite
def _ids(draw: st.DrawFn, setting: Setting) -> list[int]:
    """Ids at random, marker tokens above all, and parts of real calls."""
    name, marks = setting.tokenizer, sorted(setting.grammar.marks)
    call = encode(name, CALLS[setting.tools or ""].replace(VALUE, "x"))
    parts = st.one_of(
        st.lists(st.integers(0, detokenizer(name).vocabulary.size - 1), max_size=4),
        *([st.lists(st.sampled_from(marks), max_size=3)] if marks else []),
        st.builds(lambda a, b: call[min(a, b) : max(a, b)], st.integers(0, len(call)), st.integers(0, len(call))),
        st.sampled_from(every_marker()).map(lambda text: encode(name, text)),
        texts().map(lambda text: encode(name, text)),
    )
    return [token_id for part in draw(st.lists(parts, max_size=8)) for token_id in part]


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_ids_are_read_alike_in_any_chunking(tools: str, data: st.DataObject) -> None:
    setting = data.draw(_settings(tools))
    ids, prompt = data.draw(_ids(setting)), data.draw(_ids(setting))
    whole = parse(setting, [ids], prompt).answer
    for chunks in (sized(ids, 1), data.draw(cuts(ids))):
        assert parse(setting, chunks, prompt).answer == whole


@st.composite
def _mutated(draw: st.DrawFn, state: Any, regions: list[str]) -> Any:
    """A state with one thing in it changed, at any depth."""
    way = draw(st.sampled_from(("region", "value", "word", "unknown", "missing", "other reader")))
    if way == "region":
        return {**state, "region": draw(st.one_of(st.sampled_from(regions), texts()))}
    if way == "other reader":
        return {**state, "reader": draw(JSON)}
    fields = [*state, "held", "skip", "raw", "word", "open", "written", "calls", "reader", "thought", "spoken"]
    key = draw(st.sampled_from(fields))
    if isinstance(state.get(key), dict) and draw(st.integers(0, 3)):
        return {**state, key: draw(_mutated_reader(state[key]))}
    if way == "unknown":
        return {**state, "unknown": draw(JSON)}
    if way == "missing":
        return {name: value for name, value in state.items() if name != key}
    return {**state, key: draw(WORDS if way == "word" else JSON)}


@st.composite
def _mutated_reader(draw: st.DrawFn, reader: dict[str, Any]) -> dict[str, Any]:
    fields = (
        "expects",
        "text",
        "name",
        "quote",
        "escape",
        "json",
        "count",
        "raw",
        "refused",
        "done",
        "call",
        "opened",
        "key",
        "kinds",
    )
    key = draw(st.sampled_from((*reader, *fields)))
    if isinstance(reader.get(key), dict) and draw(st.booleans()):
        return {**reader, key: draw(_mutated_reader(reader[key]))}
    return {**reader, key: draw(st.one_of(WORDS, JSON))}


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_mutated_state_is_refused_or_read_on_from(tools: str, data: st.DataObject) -> None:
    setting = data.draw(_settings(tools))
    ids = (
        encode(setting.tokenizer, CALLS[tools].replace(VALUE, "some [text], 1"))
        if data.draw(st.booleans())
        else data.draw(_ids(setting))
    )
    states = parse(setting, sized(ids, 1), (), ended=False).states
    place = data.draw(st.integers(0, len(states) - 1))
    state = data.draw(_mutated(states[place], sorted(setting.grammar.regions)))
    rest = ids[place + 1 :] or [0]
    found, _ = pieces(detokenizer(setting.tokenizer), setting.grammar.marks, START, rest, keep_special=False, join_added=False)
    try:
        read(setting.grammar, State.load(state), found, last=True, types=setting.types, named=setting.named).state.dump()
    except REFUSALS:
        return


@pytest.mark.parametrize("tools", FORMATS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_where_no_call_is_made_nothing_is_lost(tools: str, data: st.DataObject) -> None:
    call = CALLS[tools].replace(VALUE, "x")
    cut_call = st.builds(lambda a, b: call[min(a, b) : max(a, b)], st.integers(0, len(call)), st.integers(0, len(call)))
    part = st.one_of(texts(), cut_call, st.sampled_from(("\n", " ", "}", "{", '"', ",", "]")), st.sampled_from(every_marker()))
    text = data.draw(st.lists(part, max_size=6).map("".join))
    setting = Setting(WITHOUT_TOKENS, None, tools)
    answer = parse(setting, [spell(WITHOUT_TOKENS, text)]).answer
    speaker = "助手：" if tools == "hunyuan_a13b" else ""
    assert answer.calls or answer.content.removeprefix(speaker) == text.removeprefix(speaker)


@pytest.mark.parametrize("white", ["\n", " ", "\n\n \n"])
def test_white_space_behind_a_marker_of_which_nothing_comes_is_not_lost(white: str) -> None:
    setting = Setting(WITHOUT_TOKENS, None, "llama3_json")
    for text in (f"<|python_tag|>{white}", f"So: <|python_tag|>{white}"):
        for size in (1, 100):
            assert parse(setting, sized(spell(WITHOUT_TOKENS, text), size)).answer.content == text
