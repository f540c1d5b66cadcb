"""Bad input is a 400 that names its place; a failing engine fails the requests it ran, in their own streams, and no others."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.kit import MAX_LEN, VOCAB, Live, body, live, stream

pytestmark = pytest.mark.anyio


def asking(**params: Any) -> dict[str, Any]:
    return {"token_ids": [5, 6], "sampling_params": {"max_tokens": 2, **params}}


BAD: list[tuple[Any, str | None]] = [
    ([], None),
    (5, None),
    ({}, "token_ids"),
    ({"token_ids": [5]}, "sampling_params"),
    ({**asking(), "token_ids": []}, "token_ids"),
    ({**asking(), "token_ids": "5"}, "token_ids"),
    ({**asking(), "token_ids": [5, -1]}, "token_ids.1"),
    ({**asking(), "token_ids": [5, 1.5]}, "token_ids.1"),
    ({**asking(), "token_ids": [5, "6"]}, "token_ids.1"),
    ({**asking(), "token_ids": [5, 6, VOCAB]}, "token_ids.2"),
    ({**asking(), "token_ids": [2**31 - 1]}, "token_ids.0"),
    ({**asking(), "token_ids": [5] * MAX_LEN}, "token_ids"),
    ({**asking(), "output_token_ids": [VOCAB]}, "output_token_ids.0"),
    ({**asking(), "request_id": ""}, "request_id"),
    ({**asking(), "stream": "maybe"}, "stream"),
    ({**asking(), "priority": 2**63}, "priority"),
    ({**asking(), "features": {"mm_hashes": {}, "mm_placeholders": {}}}, "features"),
    ({**asking(), "content_parts": [{"type": "image"}]}, "content_parts"),
    ({**asking(), "kv_transfer_params": {"do_remote_decode": True}}, "kv_transfer_params"),
    ({**asking(), "ec_transfer_params": {"a": 1}}, "ec_transfer_params"),
    ({**asking(), "sampling_params": None}, "sampling_params"),
    *(
        (asking(**{name: value}), f"sampling_params.{place or name}")
        for name, value, place in [
            ("max_tokens", 0, None),
            ("max_tokens", "many", None),
            ("n", 0, None),
            ("n", 9, None),
            ("temperature", -1, None),
            ("temperature", 3, None),
            ("top_p", 0, None),
            ("top_k", -2, None),
            ("min_p", 2, None),
            ("seed", 2**63, None),
            ("min_tokens", 3, None),
            ("logprobs", 21, None),
            ("logprobs", -1, None),
            ("prompt_logprobs", 21, None),
            ("stop", ["END"], None),
            ("stop", "END", None),
            ("bad_words", ["no"], None),
            ("bad_words_token_ids", [[]], "bad_words_token_ids.0"),
            ("bad_words_token_ids", [[1], [VOCAB]], "bad_words_token_ids.1.0"),
            ("structured_outputs", {"json": {}}, None),
            ("allowed_token_ids", [], None),
            ("allowed_token_ids", [3, VOCAB], "allowed_token_ids.1"),
            ("logit_bias", {str(VOCAB): 1}, f"logit_bias.{VOCAB}"),
            ("logit_bias", {"x": 1}, None),
            ("stop_token_ids", [-1], "stop_token_ids.0"),
            ("use_beam_search", True, None),
        ]
    ),
]


@pytest.mark.parametrize(("given", "param"), BAD, ids=[f"{place}-{param}" for place, (_, param) in enumerate(BAD)])
async def test_bad_input_is_named(worker: Live, given: Any, param: str | None) -> None:
    async with worker.client() as client:
        for streaming in (False, True):
            sent = {**given, "stream": streaming} if isinstance(given, dict) and "stream" not in given else given
            response = await client.post("/inference/v1/generate", json=sent)
            assert response.status_code == 400, response.text
            error = response.json()["error"]
            assert error["type"] == "BadRequestError"
            assert error["code"] == 400
            if param is not None:
                assert (error["param"] or "").startswith(param)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 5000, b"null", b'{"token_ids": [1e400]}'])
async def test_a_body_that_is_no_request_is_a_400(worker: Live, raw: bytes) -> None:
    async with worker.client() as client:
        for path in ("/inference/v1/generate", "/inference/v1/abort_requests"):
            assert (await client.post(path, content=raw)).status_code == 400


async def test_garbage_never_makes_a_server_error(worker: Live) -> None:
    rng = random.Random(0)
    odd = [None, True, -1, 0, 1.5, 2**70, "x", "", [], {}, [[]], {"a": 1}, "\ud800".encode("utf-8", "replace").decode(), [None]]
    fields = [
        *asking(),
        "n",
        "model",
        "output_token_ids",
        "stream",
        "request_id",
        "priority",
        "cache_salt",
        "features",
        "stream_options",
    ]
    params = [
        "n",
        "temperature",
        "top_p",
        "seed",
        "max_tokens",
        "logit_bias",
        "stop_token_ids",
        "logprobs",
        "allowed_token_ids",
        "zzz",
    ]
    async with worker.client() as client:
        for _ in range(150):
            request = asking()
            request[rng.choice(fields)] = rng.choice(odd)
            if isinstance(request["sampling_params"], dict):
                request["sampling_params"] = {**request["sampling_params"], rng.choice(params): rng.choice(odd)}
            response = await client.post("/inference/v1/generate", json=request)
            assert response.status_code in (200, 400, 404), (request, response.text)


async def test_an_unknown_model_is_a_404(worker: Live) -> None:
    async with worker.client() as client:
        response = await client.post("/inference/v1/generate", json={**asking(), "model": "other"})
        assert response.status_code == 404
        assert response.json()["error"]["message"] == "The model `other` does not exist."
        for name in ("tiny", None):
            assert (await client.post("/inference/v1/generate", json={**asking(), "model": name})).status_code == 200


async def test_neutral_values_and_inert_fields_pass(worker: Live) -> None:
    neutral = asking(
        stop=[], bad_words=[], prompt_logprobs=None, structured_outputs=None, detokenize=False, skip_special_tokens=False
    )
    async with worker.client() as client:
        request = {
            **neutral,
            "cache_salt": "s",
            "profile": "p",
            "features": None,
            "stream_options": {"include_usage": True},
            "x": 1,
        }
        assert (await client.post("/inference/v1/generate", json=request)).status_code == 200


async def test_a_step_that_fails_fails_its_requests_and_no_others(worker: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = worker.app.state.worker.engine.runner
    real = runner.run
    failing = asyncio.Event()

    def run(plan: Any) -> Any:
        time.sleep(0.002)  # so that they run at the same time
        if failing.is_set():
            failing.clear()
            raise RuntimeError("injected")
        return real(plan)

    monkeypatch.setattr(runner, "run", run)
    async with worker.client() as client:
        running = [asyncio.create_task(stream(client, body([5], max_tokens=200, ignore_eos=True))) for _ in range(3)]
        whole = asyncio.create_task(
            client.post("/inference/v1/generate", json=body([5], stream=False, max_tokens=200, ignore_eos=True))
        )
        await worker.becomes("requests_running", 4)
        failing.set()
        for told in await asyncio.gather(*running):
            assert told.error is not None
            assert told.error.error.type == "InternalServerError"
            assert "injected" not in told.error.error.message
        assert (await whole).status_code == 500
        assert (await client.get("/health")).status_code == 200
        assert len((await stream(client, body([5], max_tokens=20, ignore_eos=True))).ids()) == 20
    await worker.becomes("slots_used", 0)


async def test_a_request_for_which_memory_runs_out_fails_and_the_worker_goes_on(
    worker: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = worker.app.state.worker.engine.runner
    real = runner.run

    def run(works: Any) -> Any:
        if any(work.count > 10 for work in works):
            raise torch.OutOfMemoryError("injected")
        return real(works)

    monkeypatch.setattr(runner, "run", run)
    async with worker.client() as client:
        big, small = body([5] * 15, max_tokens=3), body([5], max_tokens=3, ignore_eos=True)
        told = await stream(client, big)
        assert told.error is not None
        assert "memory" in told.error.error.message
        assert len((await stream(client, small)).ids()) == 3
        monkeypatch.undo()
        assert (await stream(client, big)).error is None
    await worker.becomes("kv_tokens_used", 0)


@pytest.mark.parametrize("kernels", ["native", "torch"])
async def test_logits_that_are_no_numbers_fail_their_request_and_spoil_no_other(tiny_folder: Path, kernels: str) -> None:
    """What such a request leaves in the cache must not be found again, nor lie in a block that another one gets."""
    with live(model=str(tiny_folder), kv_cache_memory=2 * 16 * 2 * 2 * 2 * 16 * 4, cpu_kernels=kernels) as worker:
        runner = worker.app.state.worker.engine.runner
        embeddings = runner.model.get_input_embeddings().weight
        async with worker.client() as client:
            expected = (await stream(client, body([5] * 3, max_tokens=5, ignore_eos=True))).ids()
            with torch.inference_mode():
                embeddings[77] = float("nan")
            told = await stream(client, body([77] * 20, max_tokens=5))
            assert told.error is not None
            assert "not finite" in told.error.error.message
            assert (await stream(client, body([5] * 3, max_tokens=5, ignore_eos=True))).ids() == expected
            with torch.inference_mode():
                embeddings[77] = 0.0
            assert (await stream(client, body([77] * 20, max_tokens=5))).error is None


async def test_parameters_that_allow_no_token_are_an_error_of_their_request_alone(worker: Live) -> None:
    async with worker.client() as client:
        impossible = body([5], max_tokens=5, allowed_token_ids=[7], bad_words_token_ids=[[7]])
        told, other = await asyncio.gather(stream(client, impossible), stream(client, body([5], max_tokens=5, ignore_eos=True)))
    assert told.error is not None
    assert "allowed_token_ids" in told.error.error.message
    assert len(other.ids()) == 5


async def test_models_openapi_and_health(worker: Live) -> None:
    async with worker.client() as client:
        card = (await client.get("/v1/models")).json()["data"][0]
        assert (card["id"], card["max_model_len"]) == ("tiny", MAX_LEN)
        document = (await client.get("/openapi.json")).json()
        assert {"GenerateRequest", "GenerateResponse", "AbortRequest", "ErrorResponse"} <= document["components"]["schemas"].keys()
        assert "text/event-stream" in document["paths"]["/inference/v1/generate"]["post"]["responses"]["200"]["content"]
        assert (await client.get("/health")).json()["status"] == "ok"
