"""Small bodies cannot ask for much work, memory or answer (laws L9, L10): each test is a kind of body that once could."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from derender_service.batch import derender_chat, derender_completion
from derender_service.byte_fallback import ByteFallbackDecoder
from derender_service.byte_level import ByteLevelDecoder
from derender_service.derenderer import Derenderer
from derender_service.parsers.codecs.parameter_types import kinds_of
from derender_service.routes import _CHAT
from derender_service.sources import GrammarSource, PlainSource
from derender_service.stream import derender_chat_chunk
from protocol.derender import DerenderChatRequest, DerenderChatStreamRequest, DerenderCompletionRequest
from protocol.errors import BadRequest
from service_kit.body import parse_as
from service_kit.offload import INLINE_BYTES, INLINE_ITEMS, is_small
from tests.derender.parsed import QWEN, chat_request, chunk_of, chunks_of, derenderer, encode, stream, tool, whole


def chat_chunk(own: Derenderer, **body: Any) -> Any:
    raw = json.dumps({"stream": True, "model": "m", **body})
    return json.loads(derender_chat_chunk(own, DerenderChatStreamRequest.model_validate_json(raw)).wire())


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_schemas_that_name_themselves_over_and_over_are_looked_at_once(keyword: str) -> None:
    loop = {"type": "integer", keyword: [{"$ref": "#/loop"}] * 50}
    names = {f"p{number}": {keyword: [{"$ref": "#/loop"}] * 50} for number in range(50)}
    started = time.process_time()
    table = kinds_of([("f", {"properties": names, "loop": loop})])
    assert time.process_time() - started < 1
    assert table == {"f": dict.fromkeys(names, "i")}


def test_types_go_round_a_circle_of_schemas_wherever_it_is_entered() -> None:
    one, other = {"anyOf": [{"type": "integer"}, {"$ref": "#/b"}]}, {"anyOf": [{"type": "null"}, {"$ref": "#/a"}]}
    nothing = {"allOf": [{"$ref": "#/nothing"}]}
    properties = {"x": {"$ref": "#/a"}, "y": {"$ref": "#/b"}, "z": {"$ref": "#/nothing"}, "none": {"$ref": "#/missing"}}
    schema = {"properties": properties, "a": one, "b": other, "nothing": nothing}
    assert kinds_of([("f", schema)]) == {"f": {"x": "ni", "y": "ni"}}


def test_a_chain_of_references_has_no_length_that_breaks() -> None:
    chain: dict[str, Any] = {f"d{n}": {"$ref": f"#/d{n + 1}"} for n in range(5000)}
    assert kinds_of([("f", {"properties": {"x": {"$ref": "#/d0"}}, **chain, "d5000": {"type": "number"}})]) == {"f": {"x": "f"}}


@pytest.mark.parametrize("schema", [True, False, 3, None, "x", [], {"properties": 7}, {"properties": [1]}, {"type": 3}, {}])
def test_schemas_that_are_none_say_string(schema: Any) -> None:
    assert kinds_of([("f", {"properties": {"x": schema}})]) == {}


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the number of ids of each reading."""
    counts: list[int] = []
    for source in (PlainSource, GrammarSource):
        inner = source._read if source is GrammarSource else source.read

        def counted(self: Any, place: Any, ids: Sequence[int], *, last: bool, inner: Any = inner) -> Any:
            counts.append(len(ids))
            return inner(self, place, ids, last=last)

        monkeypatch.setattr(source, "_read" if source is GrammarSource else "read", counted)
    return counts


@pytest.mark.parametrize(("text", "reasoning"), [("<think>a b c", 3), ("<think>a b c</think>a b c", 3), ("a b c", 0)])
def test_the_end_of_a_long_output_is_found_by_halves(text: str, reasoning: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = reads(monkeypatch)
    for formats in (QWEN, ("smollm2", "qwen3", "hermes")):
        own, name = derenderer(*formats), formats[0]
        middle = encode(name, " word") * 3000
        ids = [*encode(name, text), *middle, *encode(name, " zq"), *middle]
        counts.clear()
        answer = whole(own, ids, chat_request(stop=["zq"]), [])
        assert answer["finish_reason"] == "stop"
        assert "zq" not in json.dumps(answer["message"])
        assert len(counts) < 100
        assert sum(counts) < 8 * len(ids)


@pytest.mark.parametrize("text", ["<think>one two</think>\n\nthree four five", "one two three four five", "four four four five"])
@pytest.mark.parametrize("stop", ["four", "two", "e", "ee f", "r f", "zq"])
def test_the_id_that_completes_a_stop_string_is_the_one_that_reading_id_by_id_finds(text: str, stop: str) -> None:
    own, request = derenderer("smollm2", "qwen3", "hermes"), chat_request(stop=[stop], return_token_ids=True)
    ids = encode("smollm2", text)
    chunks, _ = stream(own, chunks_of([[i] for i in ids], apart=True), request)
    one_by_one = [i for chunk in chunks for choice in chunk["choices"] for i in choice["token_ids"]]
    assert whole(own, ids, request, [])["token_ids"] == one_by_one


def test_reasoning_tokens_are_counted_by_halves_as_id_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    own = derenderer("smollm2", "qwen3", "hermes")
    ids = encode("smollm2", "<think>" + "why so " * 1000 + "</think>" + "because " * 1000)
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    single = None
    for size in (1, 1000, len(ids)):
        parts = [chunk_of(ids[at : at + size]) for at in range(0, len(ids), size)]
        counts = reads(monkeypatch)
        chunks, _ = stream(own, [*parts, {**chunk_of([], "stop"), "usage": usage}], chat_request())
        told = chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"]
        single = single if single is not None else told
        assert told == single > 1000
        assert size == 1 or len(counts) < 300
        monkeypatch.undo()


def test_a_history_is_read_at_once_and_refused_before_where_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    own, counts = derenderer(*QWEN), reads(monkeypatch)
    ids = encode("qwen3", "<think>\nso\n</think>\n\nyes ") * 40
    history = {"output_token_ids": ids, "output_chunk_lens": [1] * len(ids)}
    begin = {"chat_request": chat_request(), "prompt_token_ids": [], "generate_chunk": chunk_of([1])}
    told = chat_chunk(own, **begin, stream_state=history, replay=True)["stream_state"]
    assert told["output_token_ids"] == [*ids, 1]
    assert told["output_chunk_lens"] == [1] * (len(ids) + 1)
    assert len(counts) < 10
    counts.clear()
    size = own.max_model_len + 1
    with pytest.raises(BadRequest, match="max_model_len") as caught:
        chat_chunk(own, **begin, stream_state={"output_token_ids": [1] * size, "output_chunk_lens": [1] * size})
    assert caught.value.param == "stream_state.output_token_ids"
    assert not counts


def test_the_prompt_is_looked_at_once_for_all_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    own = derenderer(*QWEN)
    asked: list[int] = []
    seed = type(own.detokenizer).seed

    def counted(self: Any, ids: Any, **options: Any) -> Any:
        asked.append(1)
        return seed(self, ids, **options)

    monkeypatch.setattr(type(own.detokenizer), "seed", counted)
    choices = [{"index": index, "token_ids": [1]} for index in range(100)]
    body = {"generate_response": {"request_id": "r", "choices": choices}, "chat_request": chat_request(), "prompt_token_ids": [5]}
    assert len(derender_chat(own, DerenderChatRequest.model_validate(body)).choices) == 100
    assert len(asked) == 1


def test_a_small_body_cannot_ask_for_a_huge_answer() -> None:
    own = derenderer("qwen3", None, None)
    many = [{"index": index, "token_ids": [1]} for index in range(129)]
    chat = {"generate_response": {"request_id": "r", "choices": many}}
    with pytest.raises(BadRequest) as caught:
        derender_chat(own, DerenderChatRequest.model_validate(chat))
    assert caught.value.param == "generate_response.choices"
    response = {"request_id": "r", "choices": many[:128]}
    prompt = {"prompt_token_ids": [[5] * 100_000] * 3, "generate_responses": [response] * 3}
    for fields in ({"return_token_ids": True}, {"echo": True}):
        body = {**prompt, "completion_request": {"prompt": "x", **fields}, "prompt_tokens": [0] * 3}
        with pytest.raises(BadRequest, match="repeats") as caught:
            derender_completion(own, DerenderCompletionRequest.model_validate(body))
        assert caught.value.param == "generate_responses.2.choices"


def test_a_prompt_is_no_longer_than_the_model_takes_whatever_its_count_is_said_to_be() -> None:
    own = derenderer("qwen3", None, None)
    ids = [5] * (own.max_model_len + 1)
    body = {"generate_response": {"request_id": "r", "choices": []}, "prompt_token_ids": ids, "prompt_tokens": 0}
    with pytest.raises(BadRequest, match="max_model_len") as caught:
        derender_chat(own, DerenderChatRequest.model_validate(body))
    assert caught.value.param == "prompt_token_ids"


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_what_clients_put_into_a_window_is_not_kept(name: str) -> None:
    own = derenderer(name, None, None)
    decoder = own.detokenizer._decoder
    assert isinstance(decoder, ByteLevelDecoder | ByteFallbackDecoder)
    before = len(decoder._pieces)
    for number in range(50):
        tokens = [f"x{number} {place}" for place in range(1000)]
        state = {"prev_tokens": tokens, "read_offset": number * 20, "context": {}}
        chat_chunk(own, generate_chunk=chunk_of([9]), stream_state=state)
    assert len(decoder._pieces) < before + 50


def test_a_harmony_header_has_a_bound_in_states_too() -> None:
    own = derenderer("gptoss", "openai_gptoss", "openai")
    _, state = stream(own, [chunk_of(encode("gptoss", "<|start|>assistant"))], chat_request())
    assert state["checkpoint"]["at"]["region"] == "header"
    state["checkpoint"]["at"]["header"] = [1] * 161
    with pytest.raises(BadRequest, match="header") as caught:
        chat_chunk(own, generate_chunk=chunk_of([1]), stream_state=state)
    assert caught.value.param == "stream_state.checkpoint"


def test_many_items_are_no_small_body() -> None:
    assert is_small("x" * INLINE_BYTES)
    assert not is_small("x" * (INLINE_BYTES + 1))
    for body in (["1"] * INLINE_ITEMS, ["1"] * (INLINE_ITEMS + 1)):
        assert is_small(",".join(body)) == is_small(",".join(body).encode()) == (len(body) <= INLINE_ITEMS)


def test_a_typical_chunk_is_a_small_body() -> None:
    own = derenderer(*QWEN)
    ids = encode("qwen3", '<think>\nso\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"x": "é')
    _, state = stream(own, [chunk_of([i]) for i in ids], chat_request(tools=[tool("f")], stop=["a", "b"], return_token_ids=True))
    assert is_small(json.dumps({"stream": True, "generate_chunk": chunk_of(ids[:16]), "stream_state": state}))


MANY = 100_000
REQUEST: dict[str, Any] = {"stream": True, "generate_chunk": chunk_of([1]), "chat_request": chat_request(), "prompt_token_ids": []}
AT = {"parser": "qwen3+hermes", "version": 1}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({**REQUEST, "prompt_token_ids": [-1] * MANY}, "prompt_token_ids.0"),
        ({**REQUEST, "generate_chunk": chunk_of(["x"] * MANY)}, "generate_chunk.choices.0.token_ids.0"),  # type: ignore[list-item]
        ({**REQUEST, "chat_request": {"messages": [{}] * MANY}}, "chat_request.messages.0.role"),
        ({**REQUEST, "chat_request": chat_request(tools=[{}] * MANY)}, "chat_request.tools.0.function"),
        ({**REQUEST, "chat_request": chat_request(logit_bias={f"x{n}": "y" for n in range(MANY)})}, "chat_request.logit_bias"),
        ({**REQUEST, "stream_state": {"prev_tokens": [1] * 1000, "output_token_ids": [None] * MANY}}, "stream_state.prev_tokens.0"),
        ({**REQUEST, "stream_state": {f"x{n}": n for n in range(MANY)}}, None),
        ({"stream": False, "generate_response": {"request_id": "r", "choices": [{}] * MANY}}, "generate_response.choices.0.index"),
    ],
)
def test_a_million_errors_are_told_as_one(body: dict[str, Any], param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_as(_CHAT, json.dumps(body).encode())
    assert param is None or (caught.value.param or "").startswith(param)
    cause = caught.value.__cause__
    assert isinstance(cause, ValidationError)
    assert cause.error_count() < 10 or param is None
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("at", [{f"x{n}": n for n in range(MANY)}, {"region": "content", "header": ["x"] * MANY}])
def test_a_checkpoint_that_is_wrong_everywhere_is_refused_at_its_place(at: dict[str, Any]) -> None:
    state = {"context": {}, "role_sent": True, "checkpoint": {**AT, "at": at}}
    with pytest.raises(BadRequest) as caught:
        chat_chunk(derenderer(*QWEN), generate_chunk=chunk_of([1]), stream_state=state)
    assert (caught.value.param or "").startswith("stream_state.checkpoint.at")


@pytest.mark.parametrize(
    ("formats", "text", "fields"),
    [
        (QWEN, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n' * 1500, {"replay": True}),
        (
            ("qwen3_kimi", "kimi_k2", "kimi_k2"),
            "<|tool_calls_section_begin|><|tool_call_begin|>f:" + "1" * 800 + "<|tool_call_argument_begin|>{",
            {"replay": True},
        ),
    ],
)
def test_what_goes_out_as_a_state_comes_in_again(formats: tuple[str, str, str], text: str, fields: dict[str, Any]) -> None:
    own = derenderer(*formats)
    request = chat_request(tools=[tool("f")])
    _, state = stream(own, [chunk_of(encode(formats[0], text)), chunk_of([1])], request, bounded=False, **fields)
    assert state["tool_call_count"] == len(state["last_tool_call_ids"]) > 0


@pytest.mark.parametrize("name", ["", "n" * 257])
def test_a_function_that_no_tool_can_be_called_is_not_named(name: str) -> None:
    request = chat_request(tools=[tool("f")], tool_choice={"type": "function", "function": {"name": name}})
    with pytest.raises(BadRequest) as caught:
        parse_as(_CHAT, json.dumps({**REQUEST, "chat_request": request}).encode())
    assert caught.value.param == "chat_request.tool_choice.function.name"


@pytest.mark.parametrize(
    ("formats", "before", "mark"),
    [
        (("qwen3", "qwen3", "qwen3_coder"), "<tool_call>\n<function=f>\n<parameter=a>\n[", "<tool_call>"),
        (("qwen3_glm", "glm45", "glm45"), "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>[", "<tool_call>"),
        (QWEN, '<tool_call>{"arguments": {"a": "', "<tool_call>"),
    ],
)
def test_markers_in_what_waits_cost_each_the_same(formats: tuple[str, str, str], before: str, mark: str) -> None:
    own, request = derenderer(*formats), chat_request(tools=[tool("f", a={"type": "array"})])

    def seconds(count: int) -> float:
        ids = encode(formats[0], before) + encode(formats[0], mark) * count
        started = time.process_time()
        whole(own, ids, request, [])
        return time.process_time() - started

    seconds(1000)
    few = min(seconds(16_000) for _ in range(2))
    assert min(seconds(128_000) for _ in range(2)) < 20 * few
