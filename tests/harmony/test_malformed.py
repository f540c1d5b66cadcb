"""Outputs that are not as the format has it, each kind by name: nothing is lost, nothing leaks, every chunking reads them alike."""

import json

import pytest

from tests.harmony.kit import CALL, PROMPT, SPECIAL, START_ID, answer, answer_of_ids, ids_of, read, spelled
from tests.parsers.kit import Answer

FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"
TO_F = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


def test_a_message_without_start() -> None:
    for begin in ("", "assistant", " assistant", "<|start|>"):
        assert answer(f"{ANALYSIS}a<|end|>{begin}{FINAL}b<|return|>") == Answer("a", "b")


def test_a_message_that_begins_before_the_last_one_ended() -> None:
    for begin in ("", "<|start|>assistant"):
        assert answer(f"{ANALYSIS}a{begin}{FINAL}b<|return|>") == Answer("a", "b")
        assert answer(f"{TO_F}{{}}{begin}{FINAL}b<|return|>") == Answer("", "b", [("f", "{}")])


def test_double_ends() -> None:
    assert answer(f"{ANALYSIS}a<|end|><|end|><|start|>assistant{FINAL}b<|return|><|return|>") == Answer("a", "b")
    assert answer(f"{TO_F}{{}}<|call|><|call|><|end|>") == Answer("", "", [("f", "{}")])


def test_stray_words_between_messages_are_content() -> None:
    assert answer(f"{FINAL}a<|end|><|end|> stray words<|return|>") == Answer("", "a stray words")
    assert answer(f"{FINAL}a<|end|> and so<|start|>assistant{FINAL} b<|return|>") == Answer("", "a and so b")
    # Also those that would be header words, had a message begun.
    assert answer(f"{FINAL}a<|end|> user<|return|>") == Answer("", "a user")


def test_white_space_between_messages_is_markup() -> None:
    assert answer(f"{ANALYSIS}a<|end|>\n<|start|>assistant{FINAL}b<|return|>\n") == Answer("a", "b")


def test_an_answer_without_any_header_is_content() -> None:
    for text, prompt in (("Hello there.", None), ("Hello there.<|return|>", None), ("Hello there.", PROMPT)):
        assert answer(text, prompt=prompt) == Answer("", "Hello there.")
    assert answer("<|message|>Hello<|return|>") == Answer("", "Hello")


def test_two_channels_are_the_first() -> None:
    assert answer("<|channel|>analysis<|channel|>final<|message|>a") == Answer("a")
    assert answer("<|channel|><|channel|>analysis<|message|>a") == Answer("a")
    assert answer("<|channel|>commentary<|channel|>analysis to=functions.f<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])


def test_an_empty_channel_is_content() -> None:
    assert answer("<|channel|><|message|>a<|return|>") == Answer("", "a")
    assert answer("<|channel|> <|message|>a<|return|>") == Answer("", "a")
    assert answer("<|channel|>to=functions.f<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])
    assert answer("<|channel|> to=functions.f<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])


def test_an_unknown_channel_is_content() -> None:
    assert answer("<|channel|>weird<|message|>a<|return|>") == Answer("", "a")
    assert answer("<|channel|>weird to=functions.f<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])


def test_a_channel_without_its_marker() -> None:
    assert answer("analysis<|message|>a<|end|><|start|>assistantfinal<|message|>b<|return|>") == Answer("a", "b")
    assert answer("commentary to=functions.f json<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])


def test_an_unknown_role_is_a_stray_word() -> None:
    assert answer(f"{ANALYSIS}a<|end|><|start|>bogus{FINAL}b<|return|>") == Answer("a", "bogusb")
    assert answer(f"{ANALYSIS}a<|end|><|start|>bogus<|message|>b<|return|>") == Answer("a", "bogusb")


def test_messages_of_other_roles_stay_visible() -> None:
    assert answer(f"{FINAL}a<|end|><|start|>user<|message|> b<|end|><|start|>assistant{FINAL} c<|return|>") == Answer("", "a b c")
    result = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>22<|end|>"
    assert answer(f"{TO_F}{{}}<|call|>{result}") == Answer("", "22", [("f", "{}")])


@pytest.mark.parametrize("end", ["<|end|>", "<|return|>", "<|call|>", "<|start|>", ""])
def test_a_header_without_message(end: str) -> None:
    """Its words are markup, all others text of that channel."""
    assert answer(f"<|channel|>final{end}") == Answer()
    assert answer(f"<|channel|>final Hello there{end}") == Answer("", " Hello there")
    assert answer(f"<|channel|>analysis So, they ask{end}") == Answer(" So, they ask")
    assert answer(f"<|channel|> is a marker{end}") == Answer("", " is a marker")
    assert answer(f"<|channel|>commentary to=python{end}") == Answer()


def test_a_call_without_message() -> None:
    header = "<|channel|>commentary to=functions.f <|constrain|>json"
    assert answer(f"{header}<|call|>") == Answer("", "", [("f", "{}")])
    # The output was cut after the name: the call is told as it stands. Within the name there is none yet.
    assert answer(header) == answer(" to=functions.f<|channel|>comm") == Answer("", "", [("f", "")])
    assert answer("<|channel|>commentary to=functions.f") == answer("<|channel|>commentary to") == Answer()
    # The model began again, or ended its answer: it has not called.
    for end in ("<|end|>", "<|return|>", "<|start|>assistant"):
        assert answer(f"{header}{end}") == Answer()


def test_words_that_are_no_header_are_not_held_back() -> None:
    def shown(text: str) -> Answer:
        return read([ids_of(text)], ended=False).answer

    assert shown("Hello, ") == Answer("", "Hello, ")
    assert shown("Hello there") == Answer("", "Hello there")
    assert shown(f"{FINAL}a<|end|> stray") == Answer("", "a stray")
    # These may still be header words.
    assert shown("Hello") == shown("commentary to=functions") == shown(f"{FINAL}<|end|> user") == Answer()


@pytest.mark.parametrize("word", ["lang ", "🪨", "a" * 64, "日", "to=functions.f ", "\x01"])
def test_a_very_long_header_is_text(word: str) -> None:
    text = word * 400
    for begin, found in (("", Answer("", text)), ("<|channel|>final", Answer("", text)), ("<|channel|>analysis", Answer(text))):
        ids = [*ids_of(begin), *spelled(text)]
        chunks = [[ids], [ids[at : at + 7] for at in range(0, len(ids), 7)], [[token_id] for token_id in ids]]
        assert [read(parts).answer for parts in chunks] == [found] * 3
        assert max(read(parts).largest for parts in chunks) < 4096


def test_halves_of_characters_in_a_very_long_header() -> None:
    rock = spelled("🪨")
    ids = [*rock[:1] * 500, *rock, *ids_of(f"<|end|>{FINAL}a")]
    assert answer_of_ids(ids) == Answer("", "\ufffd" * 500 + "🪨a")
    markers = ids_of("<|channel|><|constrain|>") * 300
    assert answer_of_ids([*markers, *ids_of(f"<|start|>{FINAL}a")]) == Answer("", "a")


def test_a_content_type_before_the_recipient() -> None:
    assert answer("<|channel|>commentary json to=functions.f<|message|>{}<|call|>") == Answer("", "", [("f", "{}")])


def test_a_constrained_answer() -> None:
    assert answer('<|channel|>final <|constrain|>json<|message|>{"a": 1}<|return|>') == Answer("", '{"a": 1}')
    assert answer('<|channel|>final json<|message|>{"a": 1}<|return|>') == Answer("", '{"a": 1}')


def test_words_in_a_header_that_are_none_of_it() -> None:
    assert answer(f"Sure! {FINAL}a<|return|>") == Answer("", "Sure! a")
    assert answer("<|channel|>final Hello there<|message|>a<|return|>") == Answer("", " Hello therea")
    assert answer("<|channel|>analysis Hello<|message|>a<|end|>") == Answer(" Helloa")
    assert answer("Sure, to=functions.f<|channel|>commentary<|message|>{}<|call|>").content == "Sure, to=functions.f{}"
    assert answer("Sure to=functions.f<|channel|>commentary<|message|>{}<|call|>").content == "Sure to=functions.f{}"
    assert answer("<|channel|>commentary to=functions.f foo bar<|message|>{}<|call|>") == Answer("", " foo bar", [("f", "{}")])


def test_header_markers_in_a_text_are_dropped() -> None:
    assert answer(f"{FINAL}a<|message|>b<|constrain|>c<|return|>") == Answer("", "abc")
    assert answer(f"{ANALYSIS}a<|message|>b<|constrain|>c<|end|>") == Answer("abc")
    assert answer(f"{TO_F}{{<|message|>}}<|constrain|><|call|>") == Answer("", "", [("f", "{}")])


def test_markers_in_a_string_of_arguments_are_data() -> None:
    body = json.dumps({"a": "<|start|>assistant<|channel|>final<|message|>b<|constrain|><|endoftext|>"})
    found = answer_of_ids([*ids_of(TO_F), *ids_of(body), CALL])
    assert found == Answer("", "", [("f", body)])
    # But for those that end the message: the model cannot mean a body to go on after them.
    assert answer(f'{TO_F}{{"a": "b<|call|>') == answer(f'{TO_F}{{"a": "b<|end|>') == Answer("", "", [("f", '{"a": "b')])


def test_markers_spelled_by_ordinary_tokens_are_text() -> None:
    text = "<|end|><|start|>assistant<|channel|>final<|message|>"
    for begin, found in ((FINAL, Answer("", text)), (ANALYSIS, Answer(text)), (TO_F, Answer("", "", [("f", text)]))):
        assert read([[*ids_of(begin), *spelled(text), *ids_of("<|end|>")]]).answer == found
    assert read([[*spelled(text), *ids_of("<|end|>")]]).answer == Answer("", text)
    found = read([[*spelled("<|channel|>final"), *ids_of("<|message|>a")]]).answer
    assert found == Answer("", "<|channel|>finala")
    found = read([[*ids_of("<|channel|>final"), *spelled(" <|constrain|>json"), *ids_of("<|message|>a")]]).answer
    assert found == Answer("", " <|constrain|>jsona")


@pytest.mark.parametrize("keep_special", [False, True])
def test_special_tokens_without_a_meaning_are_dropped(keep_special: bool) -> None:
    others = [i for i in SPECIAL if i not in (200_002, 200_003, 200_005, START_ID, 200_007, 200_008, CALL)]
    ids = [i for part in ("<|channel|>", "final", "<|message|>", "a", "b<|end|>") for i in (*others, *ids_of(part))]
    assert read([[*ids, *others]], keep_special=keep_special).answer == Answer("", "ab")


def test_what_follows_a_jsons_end_is_part_of_the_arguments() -> None:
    assert answer(f'{TO_F}{{"a": 1}} or so<|call|>') == Answer("", "", [("f", '{"a": 1} or so')])


def test_a_call_without_body() -> None:
    assert answer(f"{TO_F}<|call|>") == answer(f"{TO_F}\n<|end|>") == answer(f"{TO_F}null<|call|>") == Answer("", "", [("f", "{}")])
    assert answer(TO_F) == Answer("", "", [("f", "")])


def test_recipients_that_are_no_functions() -> None:
    for recipient in ("assistant", "user", "all", "functions", "functions."):
        assert answer(f"<|channel|>commentary to={recipient}<|message|>a<|end|>") == Answer("", "a")
    assert answer("<|channel|>commentary to=functions.a{b}<|message|>a<|end|>") == Answer("", "a")


def test_built_in_tools_stay_visible_as_reasoning() -> None:
    for recipient in ("python", "browser.search", "browser", "container.exec"):
        for channel in ("analysis", "commentary"):
            assert answer(f"<|channel|>{channel} to={recipient} code<|message|>x = 1<|call|>") == Answer("x = 1")
    # A client's function of that name is called by its full name.
    assert answer("<|channel|>commentary to=functions.python<|message|>{}<|call|>") == Answer("", "", [("python", "{}")])


def test_without_a_choice_of_tools_the_body_of_a_call_is_content() -> None:
    for channel in ("analysis", "commentary"):
        text = f'<|channel|>{channel} to=functions.f <|constrain|>json<|message|>{{"a": 1}}<|call|>'
        assert answer(text, "none") == Answer("", '{"a": 1}')
    assert answer("<|channel|>commentary to=functions.f<|call|>", "none") == Answer()
