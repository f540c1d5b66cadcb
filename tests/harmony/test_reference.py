"""Well-formed outputs: openai-harmony's own parser, run over the whole output, is the reference for what is read in chunks."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import Role, StreamableParser

from tests.harmony.kit import NAME, STATE_LIMIT, divided, encoding, ids_of, read, spelled
from tests.parsers.kit import Answer, tokenizer

TEXTS = (
    "The user asks. ",
    "花岗岩更硬。✅",
    "🪨👩‍👩‍👧‍👦 e\u0301",
    "<|end|>",
    "<|start|>assistant<|channel|>final<|message|>",
    "{x} a < b |> \\n \\",
    " to=functions.f ",
    "\n\n```json\n",
    "assistant analysis",
    '"quoted"',
    "\ufffd\u2028\x00",
)
bodies = st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=8)), max_size=4).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), bodies),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(bodies, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """A JSON object as models lay it out, or a body that is none: such a one is passed on as it stands."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(("print({1})", "x = [1", "n = 5", '{"a": 1} or so', "{]}", "nul", "5", "'a'"))) + draw(bodies)
    value = draw(st.dictionaries(bodies, values, max_size=3))
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "))))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from((None, 2))), separators=separators)
    return text + draw(st.sampled_from(("", "\n")))


functions = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,24}", fullmatch=True).map("functions.".__add__)
recipients = st.one_of(functions, st.sampled_from(("get_weather", "mcp.tool", "functions.python", "functions.日本")))
built_in = st.sampled_from(("python", "browser.search", "browser.open", "container.exec"))
types = st.sampled_from(("", " json", " <|constrain|>json", "<|constrain|>json", " code"))


@st.composite
def addressed(draw: st.DrawFn, recipient: str) -> str:
    """A header with a recipient, before the channel or after it."""
    channel = draw(st.sampled_from(("commentary", "analysis")))
    before, after = draw(st.sampled_from(((f" to={recipient}", ""), ("", f" to={recipient}"))))
    return f"{before}<|channel|>{channel}{after}{draw(types)}<|message|>"


@st.composite
def message(draw: st.DrawFn) -> list[int]:
    """One message of an assistant, from after its role on, with its end."""
    kind = draw(st.sampled_from(("analysis", "commentary", "final", "call", "call", "built-in", "bare")))
    if kind == "call":
        return [*ids_of(draw(addressed(draw(recipients)))), *spelled(draw(arguments())), *ids_of("<|call|>")]
    if kind == "built-in":
        return [*ids_of(draw(addressed(draw(built_in)))), *spelled(draw(bodies)), *ids_of("<|call|>")]
    if kind == "bare":
        return [*ids_of("<|message|>"), *spelled(draw(bodies)), *ids_of("<|end|>")]
    type_ = draw(st.sampled_from(("", "", "", " <|constrain|>json"))) if kind == "final" else ""
    end = draw(st.sampled_from(("<|end|>", "<|return|>")))
    return [*ids_of(f"<|channel|>{kind}{type_}<|message|>"), *spelled(draw(bodies)), *ids_of(end)]


@st.composite
def turn(draw: st.DrawFn) -> list[int]:
    """The messages of an answer; the prompt has begun the first."""
    first, *others = draw(st.lists(message(), min_size=1, max_size=4))
    return [*first, *(token_id for ids in others for token_id in (*ids_of("<|start|>assistant"), *ids))]


def reference(ids: list[int]) -> Answer:
    """What the library's messages say. Several messages of a kind follow each other without a separator: none was written."""
    parser = StreamableParser(encoding(), Role.ASSISTANT)
    for token_id in ids:
        parser.process(token_id)
    parser.process_eos()
    found = Answer()
    for told in parser.messages:
        text, recipient = told.content[0].text, told.recipient or ""
        # The library takes the content type of a header without recipient for one.
        recipient = "" if recipient.startswith("<|constrain|>") else recipient
        if recipient.split(".")[0] in ("python", "browser", "container"):
            found.reasoning += text
        elif recipient:
            found.calls.append((recipient.removeprefix("functions."), text))
        elif told.channel == "analysis":
            found.reasoning += text
        else:
            found.content += text
    return found


def as_sent(body: str) -> str:
    """Arguments are what the model wrote, but for white space before them, and for what means no arguments."""
    text = body.lstrip()
    return "{}" if text.strip() in ("", "null", '""') else text


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_chunking_gives_what_the_library_reads_of_the_whole(data: st.DataObject) -> None:
    ids = data.draw(turn())
    expected = reference(ids)
    expected.calls = [(name, as_sent(text)) for name, text in expected.calls]
    for chunks in ([ids], [[token_id] for token_id in ids], data.draw(divided(ids))):
        found = read(chunks)
        assert found.answer == expected
        assert found.largest < STATE_LIMIT


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_cut_output_is_a_beginning_of_the_whole_one(data: st.DataObject) -> None:
    ids = data.draw(turn())
    whole = read([ids]).answer
    cut = ids[: data.draw(st.integers(0, len(ids)))]
    at_once = read([cut])
    by_one = read([[token_id] for token_id in cut] or [[]])
    assert at_once.answer == by_one.answer == read(data.draw(divided(cut))).answer
    found = at_once.answer
    assert whole.reasoning.startswith(found.reasoning)
    assert whole.content.startswith(found.content)
    assert [name for name, _ in found.calls] == [name for name, _ in whole.calls[: len(found.calls)]]
    for (_, part), (_, full) in zip(found.calls, whole.calls, strict=False):
        assert full.startswith(part)
    assert by_one.reasoning_tokens == at_once.reasoning_tokens <= len(cut)


def test_the_reference_reads_the_same_text_as_the_tokenizer() -> None:
    text = "".join(TEXTS)
    assert tokenizer(NAME).decode(spelled(text)) == text == encoding().decode(spelled(text))
