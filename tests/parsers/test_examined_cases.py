"""Readings of malformed and unusual outputs, each in every chunking through the service's own bodies, and each rule behind them."""

import json
import random
from typing import Any

import pytest

from tests.derender.parsed import assembled, chat_request, chunks_of, cuts, derenderer, stream, tool, whole
from tests.derender.test_parsed_cases import answer_of
from tests.parsers.judge import wrong
from tests.parsers.kit import CASES, Answer, encode, spell

WEATHER = '{"city": "Ulm"}'
TOOLS = [tool("ping"), tool("get_weather", city={"type": "string"}, days={"type": "integer"})]


def _examined() -> list[dict[str, Any]]:
    with (CASES / "examined.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _ids(tokenizer: str, output: list[str | dict[str, str]]) -> list[int]:
    """Text in which markers are tokens, and `spelled` text in which nothing is."""
    parts = (encode(tokenizer, part) if isinstance(part, str) else spell(tokenizer, part["spelled"]) for part in output)
    return [token_id for part in parts for token_id in part]


def read(
    tools: str, tokenizer: str, output: str, finish: str = "stop", *, choice: str = "auto", stop_reason: int | str | None = None
) -> Answer:
    """The answer to a prompt that ends in an assistant's header; in every chunking, or the test fails."""
    return answer_in_all_chunkings(
        (tokenizer, None, tools), encode(tokenizer, output), [], finish, tools=TOOLS, choice=choice, stop_reason=stop_reason
    )


def answer_in_all_chunkings(
    setting: tuple[str, str | None, str | None],
    ids: list[int],
    prompt: list[int],
    finish: str,
    *,
    tools: list[dict[str, Any]],
    choice: str | None,
    stop_reason: int | str | None = None,
) -> Answer:
    own, request = derenderer(*setting), chat_request(tools=tools, tool_choice=choice)
    batch = whole(own, ids, request, prompt, finish, stop_reason=stop_reason)
    chance, divisions = random.Random(0), cuts(ids)
    for _ in range(10):
        borders = sorted(chance.randint(0, len(ids)) for _ in range(chance.randint(1, 9)))
        divisions.append([ids[a:b] for a, b in zip([0, *borders], [*borders, len(ids)], strict=True)])
    for number, parts in enumerate(divisions):
        chunks, _ = stream(own, chunks_of(parts, finish, apart=number % 2 == 1, stop_reason=stop_reason), request, prompt)
        assert assembled(chunks) == {key: batch[key] for key in ("message", "finish_reason", "stop_reason")}
    return answer_of(batch["message"])


@pytest.mark.parametrize("case", _examined(), ids=lambda case: case["id"])
def test_examined(case: dict[str, Any]) -> None:
    formats, name = case["format"], case["tokenizer"]
    setting = name, formats["reasoning_parser"], formats["tool_call_parser"]
    ids, prompt = _ids(name, case["output"]), encode(name, case["prompt_suffix"])
    answer = answer_in_all_chunkings(setting, ids, prompt, case["finish_reason"], tools=case["tools"], choice=case["tool_choice"])
    assert wrong(answer, case["expected"]) == ""


@pytest.mark.parametrize(
    ("tools", "tokenizer", "output"),
    [
        ("hermes", "qwen3", "Go. <tool_call>"),
        ("hermes", "smollm2", "Go. <tool_call>"),
        ("hermes", "qwen3", "<tool_call>\n</tool_call>"),
        ("hermes", "qwen3", '<tool_call>{"name"</tool_call> x'),
        ("kimi_k2", "qwen3_kimi", "Go. <|tool_calls_section_begin|><|tool_calls_section_end|>"),
        ("gemma4", "qwen3_marked", "Go. <|tool_call>"),
        ("phi4_mini_json", "smollm2", "Go. functools["),
    ],
)
def test_markers_of_which_no_call_comes_are_content(tools: str, tokenizer: str, output: str) -> None:
    assert read(tools, tokenizer, output, "length") == Answer(content=output)


def test_white_space_between_the_markers_of_calls_is_no_content() -> None:
    fenced = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<｜tool▁call▁end｜>"
    output = f"<｜tool▁calls▁begin｜>{fenced}\n{fenced}\n<｜tool▁calls▁end｜>"
    assert read("deepseek_v3", "deepseek_v3", output) == Answer(calls=[("ping", "{}")] * 2)


@pytest.mark.parametrize("fence", ["```json\n", "```\n"])
def test_a_fenced_list_of_calls_is_read_in_any_chunks(fence: str) -> None:
    output = f'{fence}[{{"name": "get_weather", "arguments": {WEATHER}}}]\n```'
    assert read("xlam", "qwen3", output) == Answer(calls=[("get_weather", WEATHER)])


@pytest.mark.parametrize("output", ["```python\nx = [1]\n```", "```json\n[1, 2]\n```", "```json", "`x` and ``", "a ``` b ``` c"])
def test_a_fence_without_calls_is_text_to_its_last_tick(output: str) -> None:
    assert read("xlam", "qwen3", output) == Answer(content=output)


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("tools", ["xlam", "mistral"])
def test_a_marker_that_begins_as_a_list_does_is_no_list(tools: str, choice: str) -> None:
    listed = f'[{{"name": "get_weather", "arguments": {WEATHER}}}]'
    for output in (listed, f"[TOOL_CALLS]{listed}") if tools == "xlam" or choice == "required" else (f"[TOOL_CALLS]{listed}",):
        assert read(tools, "smollm2", output, choice=choice) == Answer(calls=[("get_weather", WEATHER)])
    assert read(tools, "smollm2", "[TOOL", "length", choice=choice) == Answer(content="[TOOL")


@pytest.mark.parametrize("tokenizer", ["smollm2", "qwen3_marked"])
def test_a_bracket_too_many_in_a_list_leaves_no_marker_behind(tokenizer: str) -> None:
    output = '<tool_calls>[{"name": "ping", "arguments": {}}}]</tool_calls>'
    assert read("jamba", tokenizer, output) == Answer(calls=[("ping", "{}")])


def test_a_name_after_the_python_tag_is_a_call() -> None:
    assert read("llama3_json", "llama3_1_pytag", '<|python_tag|>{"name": "ping"}') == Answer(calls=[("ping", "{}")])
    assert read("llama3_json", "llama3_1_pytag", '{"name": "ping"}') == Answer(content='{"name": "ping"}')


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
def test_a_marker_right_after_a_quote_is_data(quote: str) -> None:
    output = f"<|python_start|>[get_weather(city={quote}<|python_end|>{quote})]<|python_end|>"
    assert read("llama4_pythonic", "qwen3_marked", output) == Answer(calls=[("get_weather", '{"city": "<|python_end|>"}')])


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"city": "Ulm"\n', '{"city": "Ulm"'),
        ("city=Ulm\n", "city=Ulm"),
        ("", "{}"),
        ("\n", "{}"),
        ('{\n "city": "a```b"\n}\n', '{\n "city": "a```b"\n}'),
    ],
)
@pytest.mark.parametrize("tokenizer", ["deepseek_v3", "smollm2"])
def test_a_fence_ends_arguments_that_their_brackets_do_not(tokenizer: str, body: str, arguments: str) -> None:
    call = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{body}```<｜tool▁call▁end｜>"
    output = f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"
    assert read("deepseek_v3", tokenizer, output) == Answer(calls=[("get_weather", arguments)])


ENDINGS = [
    ("qwen3_coder", "smollm2", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n", '{"city": "Ulm'),
    ("qwen3_coder", "smollm2", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</function>", '{"city": "Ulm'),
    ("glm47", "qwen3_glm", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Ulm</arg_value>", '{"city": "Ulm"'),
    (
        "minimax_m2",
        "smollm2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Ulm</parameter>',
        '{"city": "Ulm',
    ),
]


@pytest.mark.parametrize(("tools", "tokenizer", "output", "cut"), ENDINGS)
def test_a_call_that_the_model_ended_lacks_no_end_marker(tools: str, tokenizer: str, output: str, cut: str) -> None:
    """One that was cut, by the length or by a stop string, may have had more to come."""
    assert read(tools, tokenizer, output) == Answer(calls=[("get_weather", WEATHER)])
    assert read(tools, tokenizer, output, "length") == Answer(calls=[("get_weather", cut)])
    assert read(tools, tokenizer, output, stop_reason="END") == Answer(calls=[("get_weather", cut)])


@pytest.mark.parametrize(
    ("tools", "tokenizer", "output"),
    [
        ("mistral", "qwen3_mistral11", "[TOOL_CALLS]ping[ARGS]"),
        ("hermes", "qwen3", '<tool_call>\n{"name": "ping"'),
        ("granite", "smollm2_granite", '<|tool_call|>[{"name": "ping", "arguments": '),
        ("deepseek_v31", "deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>"),
        ("glm45", "qwen3_glm", "<tool_call>ping\n"),
        ("qwen3_coder", "qwen3", "<tool_call>\n<function=ping>"),
    ],
)
def test_a_call_that_the_model_ended_without_arguments_has_none(tools: str, tokenizer: str, output: str) -> None:
    assert read(tools, tokenizer, output) == Answer(calls=[("ping", "{}")])
    assert read(tools, tokenizer, output, "length") == Answer(calls=[("ping", "")])


def test_a_value_that_the_model_did_not_end_stays_open() -> None:
    output = "<tool_call>\n<function=get_weather>\n<parameter=city>\nUl"
    assert read("qwen3_coder", "qwen3", output) == Answer(calls=[("get_weather", '{"city": "Ul')])
