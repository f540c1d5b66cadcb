"""Reasoning and tool calls as today's clients see them: live services, a worker that plays a Qwen3's (or a gpt-oss') ids, and
OpenAI's own client, or plain HTTP with the fields that other clients read."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageFunctionToolCall

from derender_service.app import DerenderSettings
from derender_service.app import create_app as derender_app
from protocol.sse import DONE
from tests.gateway.kit import Scripted, chat, events_of, ids_of, pipeline, replay_worker, saying, served, standing
from tests.live import serving
from tests.parsers.kit import given_cases

QWEN = "qwen3"
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "About a city.", "parameters": PARAMETERS, "strict": True}}
    for name in ("get_weather", "get_time")
]
THOUGHT = "<think>\nThe user wants weather, 天気 🌦.\n</think>\n\n"
REASONING = "The user wants weather, 天気 🌦."
WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris, le \\"6ème\\" 🗼"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris"}}\n</tool_call>'
CITY = 'Paris, le "6ème" 🗼'


@contextmanager
def qwen(tmp_path: Path, *texts: str, **options: Any) -> Iterator[OpenAI]:
    """A client of services whose worker says the texts, one a choice, from the first again after the last."""
    lines = [{"token_ids": [*ids_of(text, QWEN), 151645], "finish_reason": "stop"} for text in texts]
    worker = replay_worker(tmp_path, *lines, model=QWEN, replay_tokens_per_second=400.0)
    with pipeline(worker, model=QWEN, derenders=2, **options) as http:
        yield OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)


def ask(client: OpenAI, **fields: Any) -> ChatCompletion:
    answer: ChatCompletion = client.chat.completions.create(**{"model": QWEN, "messages": ASK, **fields})
    return answer


def stream(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return list(client.chat.completions.create(**{"model": QWEN, "messages": ASK, **options, **fields}))


def calls_of(answer: ChatCompletion, choice: int = 0) -> list[tuple[str, Any]]:
    calls = answer.choices[choice].message.tool_calls or []
    functions = [call.function for call in calls if isinstance(call, ChatCompletionMessageFunctionToolCall)]
    return [(function.name, json.loads(function.arguments)) for function in functions]


def reasoning_of(part: Any) -> str | None:
    """Of a message or a delta: OpenAI's types do not list the field, and keep it all the same."""
    found: str | None = (part.model_extra or {}).get("reasoning")
    return found


def reasoning_tokens(answer: ChatCompletion | ChatCompletionChunk) -> int:
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    return answer.usage.completion_tokens_details.reasoning_tokens or 0


def joined(chunks: list[ChatCompletionChunk], choice: int = 0) -> dict[str, Any]:
    """What a client makes of the chunks, by OpenAI's rules for deltas."""
    deltas = [c.delta for chunk in chunks for c in chunk.choices if c.index == choice]
    calls: dict[int, dict[str, str]] = {}
    for call in (call for delta in deltas for call in delta.tool_calls or ()):
        assert call.function is not None
        known = calls.setdefault(call.index, {"id": call.id or "", "name": call.function.name or "", "arguments": ""})
        known["arguments"] += call.function.arguments or ""
    return {
        "roles": [delta.role for delta in deltas if delta.role],
        "reasoning": "".join(reasoning_of(delta) or "" for delta in deltas),
        "content": "".join(delta.content or "" for delta in deltas),
        "calls": list(calls.values()),
        "finish": [c.finish_reason for chunk in chunks for c in chunk.choices if c.index == choice and c.finish_reason],
    }


def test_reasoning_and_content(tmp_path: Path) -> None:
    with qwen(tmp_path, THOUGHT + "It is **sunny** ☀.") as client:
        answer = ask(client)
        (choice,) = answer.choices
        assert (reasoning_of(choice.message), choice.message.content) == (REASONING, "It is **sunny** ☀.")
        assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
        *chunks, last = stream(client)
        assert joined(chunks) == {
            "roles": ["assistant"],
            "reasoning": REASONING,
            "content": "It is **sunny** ☀.",
            "calls": [],
            "finish": ["stop"],
        }
        assert last.usage == answer.usage
        assert 0 < reasoning_tokens(last) < answer.usage.completion_tokens  # type: ignore[union-attr]
        assert len([chunk for chunk in chunks if not chunk.choices[0].delta.model_dump(exclude_none=True)]) <= 1


@pytest.mark.parametrize("output", [WEATHER, WEATHER + "\n" + TIME], ids=["one", "parallel"])
def test_tool_calls(tmp_path: Path, output: str) -> None:
    right = [("get_weather", {"city": CITY}), ("get_time", {"city": "Paris"})][: output.count("<tool_call>")]
    with qwen(tmp_path, THOUGHT + output) as client:
        answer = ask(client, tools=TOOLS, tool_choice="auto")
        (choice,) = answer.choices
        assert calls_of(answer) == right
        assert (choice.finish_reason, choice.message.content, reasoning_of(choice.message)) == ("tool_calls", None, REASONING)
        *chunks, last = stream(client, tools=TOOLS)
        assert last.usage == answer.usage
        streamed = joined(chunks)
        assert (streamed["content"], streamed["finish"]) == ("", ["tool_calls"])
        assert [(call["name"], json.loads(call["arguments"])) for call in streamed["calls"]] == right
        assert all(call["id"].startswith("call_") for call in streamed["calls"])
        assert len({call["id"] for call in streamed["calls"]}) == len(right)


def test_content_before_calls_and_the_next_turn(tmp_path: Path) -> None:
    """The answer goes back as it came, with what the tool said: render takes it, and the model goes on."""
    with qwen(tmp_path, THOUGHT + "Let me look.\n" + WEATHER, THOUGHT + "18 °C.") as client:
        answer = ask(client, tools=TOOLS)
        message = answer.choices[0].message
        assert (message.content or "").strip() == "Let me look."
        (call,) = message.tool_calls or []
        history = [*ASK, message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "18"}]
        assert ask(client, tools=TOOLS, messages=history).choices[0].message.content == "18 °C."


def test_tool_choice_none_makes_no_calls(tmp_path: Path) -> None:
    """The tools are in the prompt still, as with vLLM; what looks like a call is text."""
    with qwen(tmp_path, THOUGHT + WEATHER) as client:
        answer = ask(client, tools=TOOLS, tool_choice="none")
        (choice,) = answer.choices
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (WEATHER, None, "stop")
        assert joined(stream(client, tools=TOOLS, tool_choice="none"))["content"] == WEATHER


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_can_be_demanded_of_workers_that_know_structures_alone(tmp_path: Path, choice: Any) -> None:
    with qwen(tmp_path, WEATHER) as client:
        for streamed in (False, True):
            with pytest.raises(BadRequestError, match="this worker knows no tokenizer") as refused:
                client.chat.completions.create(model=QWEN, messages=ASK, tools=TOOLS, tool_choice=choice, stream=streamed)
            assert refused.value.param == "sampling_params.structured_outputs"


def test_one_call_at_a_time(tmp_path: Path) -> None:
    with qwen(tmp_path, THOUGHT + WEATHER + "\n" + TIME) as client:
        answer = ask(client, tools=TOOLS, parallel_tool_calls=False)
        assert calls_of(answer) == [("get_weather", {"city": CITY})]
        assert answer.choices[0].finish_reason == "tool_calls"
        assert [call["name"] for call in joined(stream(client, tools=TOOLS, parallel_tool_calls=False))["calls"]] == ["get_weather"]


def test_hidden_reasoning(tmp_path: Path) -> None:
    with qwen(tmp_path, THOUGHT + "Sunny.") as client:
        hide = {"include_reasoning": False}
        answer = ask(client, extra_body=hide, logprobs=True)
        assert (reasoning_of(answer.choices[0].message), answer.choices[0].message.content) == (None, "Sunny.")
        assert answer.choices[0].logprobs is None
        *chunks, last = stream(client, extra_body=hide)
        assert (joined(chunks)["reasoning"], joined(chunks)["content"]) == ("", "Sunny.")
        assert reasoning_tokens(last) == reasoning_tokens(answer) > 0


def test_the_sdks_stream_helper(tmp_path: Path) -> None:
    """It assembles calls, reads their arguments while they grow, and checks the order of everything."""
    with qwen(tmp_path, THOUGHT + "Both:\n" + WEATHER + "\n" + TIME) as client:
        whole = ask(client, tools=TOOLS)
        grown: list[str] = []
        finished: list[tuple[str, object]] = []
        with client.chat.completions.stream(
            model=QWEN, messages=ASK, tools=TOOLS, stream_options={"include_usage": True}
        ) as helper:
            for event in helper:
                if event.type == "tool_calls.function.arguments.delta":
                    grown.append(event.arguments_delta)
                elif event.type == "tool_calls.function.arguments.done":
                    finished.append((event.name, event.parsed_arguments))
            final = helper.get_final_completion()
    assert calls_of(final) == calls_of(whole) == finished == [("get_weather", {"city": CITY}), ("get_time", {"city": "Paris"})]
    # How many deltas there are is the machine's matter: what comes together is derendered together.
    arguments = [call.function.arguments for call in final.choices[0].message.tool_calls or ()]
    assert "".join(grown) == "".join(arguments)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert reasoning_of(final.choices[0].message) == REASONING
    assert (final.choices[0].finish_reason, final.usage) == ("tool_calls", whole.usage)


def test_two_choices_at_once(tmp_path: Path) -> None:
    """Their tokens come in turn; each has its own reasoning, its own calls from index 0, and its own end."""
    with qwen(tmp_path, THOUGHT + "Both:\n" + WEATHER + "\n" + TIME, "<think>\nhm\n</think>\n\n" + TIME) as client:
        answer = ask(client, tools=TOOLS, n=2)
        assert [calls_of(answer, n) for n in (0, 1)] == [
            [("get_weather", {"city": CITY}), ("get_time", {"city": "Paris"})],
            [("get_time", {"city": "Paris"})],
        ]
        ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or ()]
        assert len(set(ids)) == 3
        *chunks, last = stream(client, tools=TOOLS, n=2)
        order = [chunk.choices[0].index for chunk in chunks]
        assert order != sorted(order)
        for index, choice in enumerate(answer.choices):
            streamed = joined(chunks, index)
            assert streamed["reasoning"] == reasoning_of(choice.message)
            assert [(call["name"], json.loads(call["arguments"])) for call in streamed["calls"]] == calls_of(answer, index)
            assert streamed["finish"] == ["tool_calls"]
        assert last.usage == answer.usage


def test_stop_strings_and_parsed_output(tmp_path: Path) -> None:
    """They are looked for in what the user reads; an answer that is grown of chunks for them has the shape of any other."""
    with qwen(tmp_path, THOUGHT + "One END two\n" + WEATHER) as client:
        answer = ask(client, tools=TOOLS, stop=["END"])
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == ("One ", "stop", None)
        assert joined(stream(client, tools=TOOLS, stop=["END"]))["content"] == "One "
        thinking = ask(client, stop=["weather"])
        assert (reasoning_of(thinking.choices[0].message), thinking.choices[0].message.content) == ("The user wants ", None)
        whole, grown = ask(client, tools=TOOLS), ask(client, tools=TOOLS, stop=["nowhere", "Paris"])
        same = {"choices": {0: {"message": {"tool_calls": {0: {"id"}}}}}, "id": True, "created": True, "timings": True}
        assert grown.model_dump(exclude=same) == whole.model_dump(exclude=same)  # type: ignore[arg-type]
        assert calls_of(grown) == [("get_weather", {"city": CITY})]


def test_logprobs(tmp_path: Path) -> None:
    """One entry a token, those of markup too; streamed and whole the same."""
    with qwen(tmp_path, THOUGHT + "Sunny.\n" + TIME) as client:
        answer = ask(client, tools=TOOLS, logprobs=True, top_logprobs=1)
        assert answer.choices[0].logprobs is not None
        entries = answer.choices[0].logprobs.content or []
        assert len(entries) == answer.usage.completion_tokens  # type: ignore[union-attr]
        assert bytes(b for entry in entries for b in entry.bytes or ()).decode().startswith(THOUGHT + "Sunny.")
        chunks = stream(client, tools=TOOLS, logprobs=True, top_logprobs=1)
        told = [c.logprobs.content or [] for chunk in chunks for c in chunk.choices if c.logprobs is not None]
        assert [entry for part in told for entry in part] == entries


@pytest.mark.parametrize("where", [3, len(ids_of(THOUGHT + WEATHER, QWEN)) - 9], ids=["reasoning", "arguments"])
def test_a_worker_that_dies_midway_is_not_noticed(where: int) -> None:
    text = THOUGHT + WEATHER
    broken, spare = Scripted(saying(text, break_after=where, model=QWEN)), Scripted(saying(text, model=QWEN))
    with pipeline(broken, spare, model=QWEN, derenders=2) as http:
        client = OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
        for _ in range(2):  # whichever of them is asked first
            streamed = joined(stream(client, tools=TOOLS))
            assert streamed["reasoning"] == REASONING
            assert [(call["name"], json.loads(call["arguments"])) for call in streamed["calls"]] == [
                ("get_weather", {"city": CITY})
            ]
    assert [len(request["output_token_ids"]) for request in spare.asked if request.get("output_token_ids")] == [where]


@pytest.mark.parametrize("alias", [False, True])
def test_reasoning_for_clients_that_know_its_older_name(tmp_path: Path, alias: bool) -> None:
    """Read as LiteLLM and LangChain read it: `reasoning_content` is there only where derender is told so, `reasoning` always."""
    derender = derender_app(DerenderSettings(**served(QWEN), reasoning_content=alias))
    with serving(derender) as url, qwen(tmp_path, THOUGHT + "Yes.", derender_url=url) as client:
        http = httpx.Client(base_url=str(client.base_url).removesuffix("/v1/"), timeout=30)
        *chunks, end = events_of(http.post("/v1/chat/completions", json=chat(model=QWEN, stream=True)))
        assert end == DONE
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        older = REASONING if alias else ""
        assert "".join(delta.get("reasoning", "") for delta in deltas) == REASONING
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == older
        for stop in (None, ["nowhere"]):
            message = http.post("/v1/chat/completions", json=chat(model=QWEN, stop=stop)).json()["choices"][0]["message"]
            assert (message["reasoning"], message.get("reasoning_content", ""), message["content"]) == (REASONING, older, "Yes.")


def test_tools_offered_to_a_model_without_a_place_for_them(tmp_path: Path) -> None:
    """The chat template ignores them, as it does under vLLM and transformers: the same prompt, a plain answer."""
    render, _ = standing()
    bodies = [chat(), chat(tools=TOOLS), chat(tools=TOOLS, tool_choice="auto")]
    prompts = [httpx.post(f"{render}/v1/chat/completions/render", json=body).json()["token_ids"] for body in bodies]
    assert prompts[0] == prompts[1] == prompts[2]
    with pipeline(replay_worker(tmp_path, {"token_ids": ids_of(WEATHER)})) as client:
        answer = client.post("/v1/chat/completions", json=chat(tools=TOOLS)).json()
    assert answer["choices"][0]["message"]["content"] == WEATHER


def test_a_template_with_tools_shows_them_in_the_prompt() -> None:
    render, _ = standing(QWEN)
    for choice in (None, "auto", "none"):
        body = chat(model=QWEN, tools=TOOLS, tool_choice=choice)
        prompt = httpx.post(f"{render}/v1/chat/completions/render", json=body).json()
        shown = httpx.post(f"{render}/detokenize", json={"model": QWEN, "tokens": prompt["token_ids"]}).json()["prompt"]
        assert all(json.dumps(tool) in shown for tool in TOOLS)


def test_the_readmes_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (example,) = [code for code in re.findall(r"```python\n(.*?)```", readme, re.S) if "tools=" in code]
    with qwen(tmp_path, THOUGHT + TIME) as client:
        exec(example.replace("http://127.0.0.1:8000/v1", str(client.base_url)), {})
    assert capsys.readouterr().out == f'thought: {REASONING}\nsaid: None\ncalled: get_time {{"city": "Paris"}}\n'


def _rendering(prompt: list[int]) -> FastAPI:
    """A render service that answers one prompt: ours does not write harmony's yet."""
    app = FastAPI()

    @app.post("/v1/chat/completions/render")
    async def render(body: dict[str, Any]) -> dict[str, Any]:
        return {"request_id": "chatcmpl-1", "token_ids": prompt, "sampling_params": {"max_tokens": 1000}, "model": "gptoss"}

    return app


HARMONY = {case["id"]: case for case in given_cases() if case["id"] in ("har-02", "har-04", "har-05", "har-06")}


@pytest.fixture(scope="module")
def harmony() -> Iterator[str]:
    with serving(derender_app(DerenderSettings(**served("gptoss")))) as url:
        yield url


@pytest.mark.parametrize("name", HARMONY)
def test_gpt_oss(tmp_path: Path, harmony: str, name: str) -> None:
    case = HARMONY[name]
    worker = replay_worker(
        tmp_path, {"token_ids": case["output_token_ids"], "finish_reason": "stop"}, model="gptoss", replay_vocab_size=201_088
    )
    with (
        serving(_rendering(case["prompt_suffix_ids"])) as render,
        pipeline(worker, render_url=render, derender_url=harmony) as http,
    ):
        client = OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
        asked = {"model": "gptoss", "tools": case["tools"] or None}
        whole, chunks = ask(client, **asked), stream(client, **asked)
    right = case["expected"]
    message = whole.choices[0].message
    assert (reasoning_of(message), message.content) == (right["reasoning"], right["content"])
    calls = [(call["name"], json.loads(call["arguments"])) for call in right["tool_calls"]]
    assert calls_of(whole) == calls
    assert whole.choices[0].finish_reason == ("tool_calls" if calls else "stop")
    streamed = joined(chunks)
    assert (streamed["reasoning"], streamed["content"]) == (right["reasoning"], right["content"] or "")
    assert [(call["name"], json.loads(call["arguments"])) for call in streamed["calls"]] == calls
    assert chunks[-1].usage == whole.usage
