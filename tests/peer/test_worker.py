"""vLLM's own server as the worker: the same calls, from OpenAI's client to our gateway, answered by either worker."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

import tandem
from gateway.app import GatewaySettings
from gateway.app import create_app as gateway_app
from generate_worker import weights
from generate_worker.app import WorkerSettings
from generate_worker.app import create_app as worker_app
from tests.gateway.kit import standing
from tests.live import serving
from tests.peer.vllm import VARIABLE, installed, worker_server

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(installed() is None, reason=f"vLLM is not installed: set {VARIABLE} to a virtual environment that has it"),
]

CONTEXT = 2048
FRANCE: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


@contextmanager
def gateway(worker: str) -> Iterator[OpenAI]:
    render, derenders = standing()
    behind = GatewaySettings(render_url=render, derender_url=derenders[0], worker_url=worker)
    with serving(gateway_app(behind)) as url:
        yield OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Both workers' addresses. They compute in float32, so that greedy answers are the same."""
    folder = weights.weights_folder("smollm2")
    flags = ("--dtype", "float32", "--max-model-len", str(CONTEXT), "--served-model-name", "smollm2")
    with ExitStack() as stack:
        theirs = stack.enter_context(worker_server(tmp_path_factory.mktemp("vllm"), folder, *flags))
        app = worker_app(WorkerSettings(model="smollm2", max_model_len=CONTEXT, log_level="error"))
        ours = stack.enter_context(serving(app))
        yield {"vllm": theirs, "tandem": ours}


@pytest.fixture(scope="module")
def clients(workers: dict[str, str]) -> Iterator[dict[str, OpenAI]]:
    """A client of a gateway before each."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(gateway(url)) for name, url in workers.items()}


def ask(client: OpenAI, **given: Any) -> Any:
    return client.chat.completions.create(model="smollm2", messages=FRANCE, **{"temperature": 0, "max_tokens": 12, **given})


def told(client: OpenAI, **given: Any) -> tuple[str, str, Any, Any]:
    """Text, reason, usage and the tokens of the logprobs of a stream."""
    text, reason, usage, tokens = "", "", None, []
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}, **given):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            tokens += [entry.token for entry in (choice.logprobs.content or [] if choice.logprobs else [])]
    return text, reason, usage and (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), tokens


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_tokens": 40},
        {"stop": [" is"]},
        {"logprobs": True, "top_logprobs": 3},
        {"extra_body": {"stop_token_ids": [4649]}},
        {"extra_body": {"min_tokens": 12, "ignore_eos": True}},
        {"logit_bias": {"504": -100}},
        {"extra_body": {"repetition_penalty": 1.3, "top_k": 5}},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"extra_body": {"allowed_token_ids": [504, 3575, 282, 4649]}},
    ],
    ids=str,
)
def test_both_workers_answer_alike(clients: dict[str, OpenAI], given: dict[str, Any]) -> None:
    streams = {name: told(client, **given) for name, client in clients.items()}
    assert streams["vllm"] == streams["tandem"]
    text, reason, usage, tokens = streams["vllm"]
    assert text
    for client in clients.values():
        answer = ask(client, **given)
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason) == (text, reason)
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == usage
        assert bool(tokens) == bool(given.get("logprobs"))
        if tokens:
            assert [entry.token for entry in choice.logprobs.content] == tokens
            assert all(len(entry.top_logprobs) >= 3 for entry in choice.logprobs.content)


def test_logprobs_are_close(clients: dict[str, OpenAI]) -> None:
    found = [[entry.logprob for entry in ask(client, logprobs=True).choices[0].logprobs.content] for client in clients.values()]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_several_choices_and_seeds(clients: dict[str, OpenAI]) -> None:
    for client in clients.values():
        first, again = (ask(client, n=3, temperature=1.0, seed=5) for _ in range(2))
        assert [choice.index for choice in first.choices] == [0, 1, 2]
        assert [one.message.content for one in first.choices] == [one.message.content for one in again.choices]
        assert len({choice.message.content for choice in first.choices}) > 1


def test_completions_of_several_prompts(clients: dict[str, OpenAI]) -> None:
    texts = [
        [
            one.text
            for one in client.completions.create(
                model="smollm2", prompt=["One, two,", "A B C"], max_tokens=6, temperature=0
            ).choices
        ]
        for client in clients.values()
    ]
    assert texts[0] == texts[1]
    assert all(texts[0])


def test_what_the_worker_refuses_is_the_clients_to_read(clients: dict[str, OpenAI]) -> None:
    for client in clients.values():
        with pytest.raises(BadRequestError, match=r"(?i)tokenizer"):
            ask(client, response_format={"type": "json_object"})


def test_our_client_reads_and_checks_either_workers_stream(workers: dict[str, str]) -> None:
    render, derenders = standing()
    answers = []
    for worker in workers.values():
        target = tandem.Pipeline(render=render, worker=worker, derender=derenders[0])
        request = {"model": "smollm2", "messages": FRANCE, "temperature": 0, "max_tokens": 40}
        with tandem.stream_sync(target, request, chunking="sentence") as answer:
            segments = list(answer)
        assert answer.completed_normally
        usage = answer.usage
        answers.append((segments, answer.full_text, answer.finish_reason, usage.prompt_tokens, usage.completion_tokens))
    assert answers[0] == answers[1]
    assert "Paris" in answers[0][1]
