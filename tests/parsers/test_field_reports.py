"""Troubles that users of systems like this one met in public, each as its smallest input to the driver."""

import json

import pytest

from derender_service.parsers.codecs.parameter_types import kinds_of
from derender_service.parsers.events import Arguments, CallStart, Content, Reasoning
from tests.parsers.kit import Answer, Setting, detokenizer, encode, parse, sized, spell

TURN = "<|im_start|>assistant\n"
QWEN = Setting("qwen3", "qwen3", "hermes")
SPELLED = Setting("smollm2", "qwen3", "hermes")
CODER = Setting("qwen3", "qwen3", "qwen3_coder")
KIMI = Setting("qwen3_kimi", "kimi_k2", "kimi_k2")
MISTRAL = Setting("qwen3_mistral11", "mistral", "mistral")


def answer_to(setting: Setting, *parts: str, prompt: str = TURN) -> Answer:
    """What these deltas give, the same as id by id and as a whole."""
    name, chunks = setting.tokenizer, [encode(setting.tokenizer, part) for part in parts]
    ids, start = [token_id for chunk in chunks for token_id in chunk], encode(name, prompt)
    found = parse(setting, chunks, start).answer
    for others in ([ids], *(sized(ids, size) for size in (1, 2, 3, 4, 7, 12))):
        assert parse(setting, others, start).answer == found
    return found


def arguments_of(found: Answer) -> list[tuple[str, object]]:
    return [(name, json.loads(arguments)) for name, arguments in found.calls]


def test_r15_the_end_of_thinking_in_pieces() -> None:
    text = "<think>why</think>plain"
    for size in range(1, 8):
        assert answer_to(SPELLED, *(text[at : at + size] for at in range(0, len(text), size))) == Answer("why", "plain", [])
    assert answer_to(QWEN, text) == Answer("why", "plain", [])


def test_r17_a_prompt_that_closed_thinking() -> None:
    assert answer_to(QWEN, "42", prompt=TURN + "<think>\n\n</think>\n\n") == Answer("", "42", [])


def test_r19_cut_within_reasoning() -> None:
    assert answer_to(QWEN, "Let me", prompt=TURN + "<think>") == Answer("Let me", "", [])


def test_r21_the_end_marker_spelled_by_ordinary_tokens() -> None:
    ids = [*encode("qwen3", "<think>"), *spell("qwen3", "say </think> now"), *encode("qwen3", "</think>done")]
    for chunks in ([ids], sized(ids, 1)):
        assert parse(QWEN, chunks, encode("qwen3", TURN)).answer == Answer("say </think> now", "done", [])


def test_r23_a_marker_of_which_one_character_came_before() -> None:
    call = '{"name":"f","arguments":{}}</tool_call>'
    assert answer_to(SPELLED, "thought<", "tool_call>" + call, prompt=TURN + "<think>") == Answer("thought", "", [("f", "{}")])
    kimi = Setting("smollm2", "kimi_k2", "kimi_k2")
    section = "|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert answer_to(kimi, "thought<", section, prompt=TURN + "<think>") == Answer("thought", "", [("f", "{}")])


def test_r25_a_second_end_of_thinking() -> None:
    """As a token it is markup wherever it stands, and dropped; spelled by ordinary tokens it is text."""
    assert answer_to(QWEN, "a</think>b</think>c", prompt=TURN + "<think>") == Answer("a", "bc", [])
    assert answer_to(SPELLED, "a</think>b</think>c", prompt=TURN + "<think>") == Answer("a", "b</think>c", [])


def test_r27_two_calls_in_few_deltas() -> None:
    bodies = ('{"name": "f", "arguments": {"x": 1}}', '{"name": "g", "arguments": {"y": 2}}')
    found = answer_to(QWEN, "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies))
    assert found == Answer("", "", [("f", '{"x": 1}'), ("g", '{"y": 2}')])


def test_r29_the_last_value_and_the_end_share_a_delta() -> None:
    head = "<tool_call>\n<function=f>\n<parameter=a>\n"
    found = answer_to(CODER, head, "hi\n</parameter>\n</function>", "")
    assert arguments_of(found) == [("f", {"a": "hi"})]


def test_r31_no_arguments_and_braces_as_arguments() -> None:
    found = answer_to(CODER, "<function=ping></function><function=f><parameter=p>}}{</parameter></function>")
    assert arguments_of(found) == [("ping", {}), ("f", {"p": "}}{"})]


def test_r33_escaped_and_raw_unicode() -> None:
    arguments = r'{"a": "\u00fc ü \n \" 🪐 \ud83e\ude90"}'
    found = answer_to(QWEN, '<tool_call>\n{"name": "f", "arguments": ' + arguments + "}\n</tool_call>")
    assert found.calls == [("f", arguments)]
    assert arguments_of(found) == [("f", {"a": 'ü ü \n " 🪐 🪐'})]


def test_r35_kimi_with_text_before_and_long_arguments() -> None:
    long = json.dumps({"text": "line\n" * 4_000})
    call = "<|tool_call_begin|>functions.f:{}<|tool_call_argument_begin|>{}"
    parts = ["Hello ", "<|tool_calls_section_begin|>" + call.format(0, long), "<|tool_call_end|>" + call.format("1\n", "{}")]
    found = answer_to(KIMI, *parts, "<|tool_call_end|><|tool_calls_section_end|>")
    assert found == Answer("", "Hello ", [("f", long), ("f", "{}")])


def test_r37_mistrals_separators_alone_and_within_strings() -> None:
    found = answer_to(MISTRAL, "[TOOL_CALLS]", "read", "[ARGS]", '{"p":"a [TOOL_CALLS] b"}')
    assert found == Answer("", "", [("read", '{"p":"a [TOOL_CALLS] b"}')])


def test_r39_a_union_never_drops_a_call() -> None:
    schema = {"properties": {"v": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}}
    setting = Setting("qwen3", "qwen3", "qwen3_coder", types=kinds_of([("f", schema)]))
    call = "<tool_call>\n<function=f>\n<parameter=v>\n{}\n</parameter>\n</function>\n</tool_call>"
    assert arguments_of(answer_to(setting, call.format("maybe"))) == [("f", {"v": "maybe"})]
    assert arguments_of(answer_to(setting, call.format("true"))) == [("f", {"v": True})]


@pytest.mark.parametrize("tools", ["llama3_json", "hermes", "xlam", "pythonic"])
def test_r41_what_begins_like_a_call_and_is_prose(tools: str) -> None:
    text = '{"name": is what I\'d use, or [{"name": that.'
    assert answer_to(Setting("smollm2", None, tools), text) == Answer("", text, [])


def test_r43_a_cut_call_stays_open() -> None:
    found = answer_to(QWEN, '<tool_call>\n{"name": "f", "arguments": {"a": 1, "b": "x')
    assert found == Answer("", "", [("f", '{"a": 1, "b": "x')])


@pytest.mark.parametrize("setting", [QWEN, CODER, KIMI], ids=lambda setting: setting.tools)
def test_r51_arguments_flow(setting: Setting) -> None:
    heads = {
        "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": "',
        "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n",
        "kimi_k2": '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "',
    }
    head, body = encode(setting.tokenizer, heads[setting.tools or ""]), encode(setting.tokenizer, "some words, " * 1_500)
    assert len(body) > 4_000
    reading = parse(setting, [head, *sized(body, 1)], encode(setting.tokenizer, TURN), ended=False)
    assert isinstance(reading.events[0][0], CallStart)
    sent = "".join(event.text for events in reading.events[1:] for event in events if isinstance(event, Arguments))
    assert not any(isinstance(event, Reasoning | Content) for events in reading.events for event in events)
    text = detokenizer(setting.tokenizer).whole(body, keep_special=True)
    assert text.startswith(sent)
    assert len(text) - len(sent) < 4
    assert all(sum(len(event.text) for event in events) > 0 for events in reading.events[1:])


@pytest.mark.parametrize("setting", [QWEN, SPELLED, Setting("smollm2", None, "granite")], ids=lambda setting: setting.tokenizer)
def test_markup_around_nothing_is_text_to_the_letter(setting: Setting) -> None:
    text = "<tool_call>\n\n</tool_call>x"
    assert answer_to(setting, text) == Answer("", text, [])


def test_hermes_calls_in_a_list() -> None:
    calls = '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": [1]}}]'
    assert answer_to(QWEN, f"<tool_call>\n{calls}\n</tool_call>") == Answer("", "", [("f", "{}"), ("g", '{"a": [1]}')])
