"""Which tokens come out, and how the stream tells them."""

import asyncio
import random
import time
from typing import Any

import pytest
import torch

from protocol.generate import GenerateResponse
from tests.worker.kit import EOS, MAX_LEN, NAME, VOCAB, Live, body, live, stream

pytestmark = pytest.mark.anyio


def prompts(count: int, longest: int = 60, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCAB) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return made[0, len(prompt) :].tolist()


async def test_greedy_is_what_transformers_generates_alone_and_in_company(worker: Live, reference: Any) -> None:
    asked = prompts(8)
    expected = [greedy(reference, prompt, 30) for prompt in asked]
    async with worker.client() as client:
        alone = [(await stream(client, body(prompt, max_tokens=30))).ids() for prompt in asked]
        together = await asyncio.gather(*(stream(client, body(prompt, max_tokens=30)) for prompt in asked))
    assert alone == expected
    assert [told.ids() for told in together] == expected


async def test_requests_that_come_and_go_at_all_times_do_not_disturb_each_other(worker: Live, reference: Any) -> None:
    asked = prompts(24, seed=2)
    rng = random.Random(3)
    counts = [rng.randint(1, 40) for _ in asked]

    async def one(client: Any, prompt: list[int], count: int) -> list[int]:
        await asyncio.sleep(rng.random() * 0.3)
        return (await stream(client, body(prompt, max_tokens=count))).ids()

    async with worker.client() as client:
        got = await asyncio.gather(*(one(client, *pair) for pair in zip(asked, counts, strict=True)))
    assert got == [greedy(reference, *pair) for pair in zip(asked, counts, strict=True)]
    await worker.becomes("slots_used", 0)
    await worker.becomes("kv_tokens_used", 0)


async def test_the_stopping_token_travels_in_done_alone(worker: Live, reference: Any) -> None:
    prompt = prompts(1)[0]
    ids = greedy(reference, prompt, 20)
    stop = ids[7]
    first = ids.index(stop)
    async with worker.client() as client:
        told = await stream(client, body(prompt, max_tokens=20, stop_token_ids=[stop, 400_000]))
    done = told.last.choices[0]
    assert (done.token_ids, done.finish_reason, done.stop_reason) == ([stop], "stop", stop)
    assert told.ids() == ids[: first + 1]
    assert [len(event.choices[0].token_ids) for event in told.events[:-1]] == [1] * first  # type: ignore[union-attr]


async def test_eos_stops_with_no_reason_and_can_be_ignored_or_put_off(worker: Live) -> None:
    force = {"logit_bias": {str(EOS): 100}}
    async with worker.client() as client:
        stopped = await stream(client, body([5, 6], max_tokens=9, **force))
        ignored = await stream(client, body([5, 6], max_tokens=9, ignore_eos=True, **force))
        late = await stream(client, body([5, 6], max_tokens=9, min_tokens=4, **force))
        late_and_ignored = await stream(client, body([5, 6], max_tokens=9, min_tokens=4, ignore_eos=True, **force))
        named = await stream(client, body([5, 6], max_tokens=9, ignore_eos=True, stop_token_ids=[EOS], **force))
    assert stopped.ids() == [EOS]
    assert stopped.last.choices[0].stop_reason is None
    assert ignored.ids() == [EOS] * 9
    assert ignored.last.choices[0].finish_reason == "length"
    assert EOS not in late.ids()[:4]
    assert late.ids()[4:] == [EOS]
    assert EOS not in late_and_ignored.ids()[:4]
    assert late_and_ignored.ids()[4:] == [EOS] * 5
    assert named.last.choices[0].stop_reason == EOS


async def test_the_context_bounds_the_length(worker: Live) -> None:
    prompt = [7] * (MAX_LEN - 5)
    async with worker.client() as client:
        for given in ({}, {"max_tokens": 1000}):
            told = await stream(client, body(prompt, ignore_eos=True, **given))
            assert len(told.ids()) == 5
            assert told.last.choices[0].finish_reason == "length"


async def test_whole_answer_equals_the_stream(worker: Live) -> None:
    given: dict[str, Any] = {"max_tokens": 12, "n": 3, "temperature": 1, "seed": 5, "logprobs": 2, "return_token_ids": True}
    async with worker.client() as client:
        told = await stream(client, body([9, 8, 7], request_id="same", **given))
        response = await client.post("/inference/v1/generate", json=body([9, 8, 7], stream=False, request_id="same", **given))
    answer = response.json()
    assert answer["model"] == NAME
    assert answer["prompt_token_ids"] == [9, 8, 7]
    assert [choice["token_ids"] for choice in answer["choices"]] == [told.ids(index) for index in range(3)]
    for index, choice in enumerate(answer["choices"]):
        done = told.dones[index].choices[0]
        assert (choice["finish_reason"], choice["stop_reason"]) == (done.finish_reason, done.stop_reason)
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    assert told.last.usage is not None
    assert answer["usage"]["completion_tokens"] == told.last.usage.completion_tokens
    assert answer["timings"]["total_ms"] == answer["timings"]["queue_ms"] + answer["timings"]["execution_ms"]


async def test_logprobs_tell_the_raw_distribution(worker: Live, reference: Any) -> None:
    prompt = prompts(1, seed=4)[0]
    asked = body(prompt, max_tokens=6, temperature=1.5, seed=3, logprobs=4, logit_bias={"17": 5.0}, ignore_eos=True)
    async with worker.client() as client:
        told = await stream(client, asked)
    ids = told.ids()
    with torch.inference_mode():
        raw = reference(torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
    for place, entry in enumerate(told.logprobs()):
        row = raw[len(prompt) - 1 + place]
        assert entry.token_id == ids[place]
        assert entry.logprob == pytest.approx(row[ids[place]].item(), abs=1e-3)
        assert entry.rank == int((row > row[ids[place]]).sum()) + 1
        assert [one.token_id for one in entry.top_logprobs] == row.topk(4).indices.tolist()
        assert [one.rank for one in entry.top_logprobs] == [1, 2, 3, 4]


async def test_the_first_event_tells_a_drawn_seed_that_reproduces_the_stream(worker: Live) -> None:
    async with worker.client() as client:
        told = await stream(client, body([4, 5], max_tokens=16, temperature=1, return_token_ids=True))
        assert told.events[0].prompt_token_ids == [4, 5]  # type: ignore[union-attr]
        seed = told.events[0].seed  # type: ignore[union-attr]
        again = await stream(client, body([4, 5], max_tokens=16, temperature=1, seed=seed))
    assert again.ids() == told.ids()
    assert again.events[0].seed is None  # type: ignore[union-attr]


async def test_request_ids_come_from_the_body_else_from_the_header(worker: Live) -> None:
    async with worker.client() as client:
        given = await stream(client, body([4], max_tokens=1, request_id="mine"))
        answer = await client.post(
            "/inference/v1/generate", json=body([4], stream=False, max_tokens=1), headers={"X-Request-Id": "its"}
        )
    assert given.events[0].request_id == "mine"
    assert answer.json()["request_id"] == "its"
    assert answer.headers["x-request-id"] == "its"


SAMPLED: dict[str, Any] = {"max_tokens": 14, "temperature": 1.1, "seed": -77, "ignore_eos": True}
FULL: dict[str, Any] = {
    **SAMPLED,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.01,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "min_tokens": 5,
    "stop_token_ids": [11],
    "bad_words_token_ids": [[12, 13], [14]],
}


@pytest.mark.parametrize("params", [SAMPLED, FULL], ids=["plain", "full"])
async def test_a_seed_gives_the_same_ids_alone_in_company_and_resumed_anywhere(worker: Live, params: dict[str, Any]) -> None:
    prompt = prompts(1, seed=6)[0]
    others = [body(other, max_tokens=25, temperature=0.9) for other in prompts(6, seed=7)]
    async with worker.client() as client:
        alone = await stream(client, body(prompt, **params))
        ids = alone.ids()
        in_company, *_ = await asyncio.gather(stream(client, body(prompt, **params)), *(stream(client, other) for other in others))
        assert in_company.ids() == ids
        done = alone.last.choices[0]
        for cut in range(len(ids) if done.finish_reason == "stop" else len(ids) + 1):
            resumed = await stream(client, body(prompt, output_token_ids=ids[:cut], **params))
            assert resumed.ids() == ids[cut:]
            assert resumed.last.choices[0].output_tokens == len(ids)
            assert resumed.last.choices[0].finish_reason == done.finish_reason


async def test_a_resumed_answer_is_what_its_stream_brings(worker: Live) -> None:
    """The ids after the resumed ones, each with its logprobs: derender can read it as the output of a longer prompt."""
    prompt = prompts(1, seed=6)[0]
    async with worker.client() as client:
        ids = (await stream(client, body(prompt, max_tokens=10, temperature=0))).ids()
        asked = body(prompt, max_tokens=10, temperature=0, logprobs=1, output_token_ids=ids[:4]) | {"stream": False}
        answer = GenerateResponse.model_validate_json((await client.post("/inference/v1/generate", json=asked)).content)
    (choice,) = answer.choices
    assert choice.token_ids == ids[4:]
    assert choice.logprobs is not None
    assert [entry.token_id for entry in choice.logprobs.content or []] == ids[4:]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(ids)


async def test_choices_differ_interleave_and_each_ends_once(worker: Live) -> None:
    asked = body([3, 4, 5], max_tokens=12, n=8, temperature=1, seed=1, ignore_eos=True)
    async with worker.client() as client:
        told = await stream(client, asked)
        again = await stream(client, {**asked, "sampling_params": {**asked["sampling_params"], "n": 3}})
    outputs = [told.ids(index) for index in range(8)]
    assert len({tuple(one) for one in outputs}) == 8
    assert [again.ids(index) for index in range(3)] == outputs[:3]
    first_end = next(place for place, event in enumerate(told.events) if event.type == "done")
    assert {event.choices[0].index for event in told.events[:first_end]} == set(range(8))  # type: ignore[union-attr]


async def test_priority_goes_first_in_the_queue(tiny_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(model=str(tiny_folder), max_num_seqs=1) as one_slot:
        order: list[str] = []
        runner = one_slot.app.state.worker.engine.runner
        real = runner.run

        def slowly(works: Any) -> Any:
            time.sleep(0.002)
            return real(works)

        monkeypatch.setattr(runner, "run", slowly)

        async def ask(client: Any, name: str, priority: int, count: int) -> None:
            await stream(client, body([5], max_tokens=count, request_id=name, priority=priority, ignore_eos=True))
            order.append(name)

        async with one_slot.client() as client:
            tasks = [asyncio.create_task(ask(client, "running", 0, 200))]
            await one_slot.becomes("requests_running", 1)
            for name, priority in (("late", 5), ("first", -1), ("middle", 0)):
                tasks.append(asyncio.create_task(ask(client, name, priority, 1)))
                await asyncio.sleep(0.02)
            await asyncio.gather(*tasks)
    assert order == ["running", "first", "middle", "late"]
