"""Live servers on real ports: the replay engine and its failures, the pipeline, the gateway."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from protocol.sse import DONE, encode
from tandem.bench.targets.generating import sha256_of_ids
from tests.bench.kit import Ran, ran
from tests.gateway.kit import Scripted, pipeline, refusal, replay_worker, saying, standing
from tests.live import serving


@contextmanager
def replaying(folder: Path, *lines: dict[str, Any], **changes: Any) -> Iterator[str]:
    """The URL of a worker that plays these lines."""
    with serving(replay_worker(folder, *lines, **changes)) as url:
        yield url


def metric(url: str, name: str) -> float:
    """The sum over a metric's labels."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == f"tandem_{name}")


def statuses(made: Ran) -> list[str]:
    return [row["error_kind"] or row["status"] for row in made.rows]


def test_a_worker_and_the_bench_count_the_same(tmp_path: Path) -> None:
    with replaying(tmp_path) as url:
        made = ran(tmp_path, target="worker", url=url, scenario="mixed", requests=12, concurrency=[3], warm_up=0)
        assert made.code == 0
        assert made.point.tokens.prompt == metric(url, "prompt_tokens_total")
        assert made.point.tokens.output == metric(url, "generated_tokens_total")
    assert made.point.tokens.prompt_source == made.point.tokens.output_source == {"ids": 12}
    assert {row["kind"] for row in made.rows} == {"short-short", "long-long"}
    assert made.point.finish_reasons == {"length": 12}
    for row in made.rows:
        assert row["arrivals"] == row["output_tokens"]
        assert 0 < row["client_ttft_ms"] <= row["client_latency_ms"]
        assert row["server_total_ms"] == pytest.approx(row["server_queue_ms"] + row["server_execution_ms"])


def test_the_same_seed_is_answered_alike_by_any_server_and_another_seed_is_not(tmp_path: Path) -> None:
    common = {"target": "worker", "requests": 6}
    with replaying(tmp_path) as one, replaying(tmp_path, replay_chunk_size=5) as other:
        first = ran(tmp_path, url=one, concurrency=[1], **common)
        again = ran(tmp_path, url=other, concurrency=[6], **common)
        differs = ran(tmp_path, url=one, concurrency=[1], seed=1, **common)
    assert first.point.output_hashed == "ids"
    asked, asked_again, asked_else = ([row["request_sha256"] for row in made.rows] for made in (first, again, differs))
    assert asked == asked_again
    assert not set(asked) & set(asked_else)
    assert first.point.output_sha256 == again.point.output_sha256 != differs.point.output_sha256
    assert again.rows[0]["arrivals"] < first.rows[0]["arrivals"]


def test_the_hash_is_of_the_ids(tmp_path: Path) -> None:
    requests = tmp_path / "mine.jsonl"
    requests.write_text('{"token_ids": [5, 6]}\n{"token_ids": [7], "temperature": 1}')
    with replaying(tmp_path, {"token_ids": [504, 3575, 2], "finish_reason": "stop"}) as url:
        made = ran(tmp_path, target="worker", url=url, requests_file=requests, concurrency=[1], warm_up=0)
    greedy, drawn = made.rows
    assert greedy["output_sha256"] == sha256_of_ids([504, 3575, 2])
    assert (greedy["output_tokens"], greedy["finish_reason"], greedy["prompt_tokens"]) == (3, "stop", 2)
    assert (drawn["output_sha256"], drawn["output_tokens"]) == (None, 3)


def test_every_failure_of_a_worker_has_its_kind_and_ends_nothing_else(tmp_path: Path) -> None:
    kinds = ["drop", "error", "stall", "missing", "duplicate", "late"]
    faults = [{"tokens": 8, "fail": {"kind": kind, "after": 3}} for kind in kinds]
    with replaying(tmp_path, {"tokens": 8}, *faults, {"tokens": 8, "chunk_size": 4}) as url:
        made = ran(tmp_path, target="worker", url=url, requests=8, concurrency=[1], warm_up=0, timeout=1.0)
    assert statuses(made) == ["completed", "protocol", "http", "timeout", "protocol", "protocol", "protocol", "completed"]
    assert made.code == 0
    assert made.point.errors == {"http": 1, "timeout": 1, "protocol": 4}
    messages = dict(zip(kinds, (row["error_message"] for row in made.rows[1:7]), strict=True))
    assert "connection broke" in messages["drop"]
    assert messages["error"] == "this failure was asked for by the replay script"
    assert made.rows[2]["error_status"] == 500
    assert messages["stall"] == "not over after 1 s"
    assert "token_index is 4, 3 ids have come" in messages["missing"]
    assert "token_index is 3, 4 ids have come" in messages["duplicate"]
    assert "after the stream's end" in messages["late"]
    assert [row["arrivals"] for row in made.rows] == [8, 3, 3, 3, 3, 4, 4, 2]
    assert made.point.tokens.output == 16


def test_a_run_of_failures_alone_ends_with_code_1(tmp_path: Path) -> None:
    with replaying(tmp_path, {"tokens": 8, "fail": {"kind": "drop", "after": 1}}) as url:
        made = ran(tmp_path, target="worker", url=url, requests=3)
    assert made.code == 1
    assert made.point.requests.failed == 3
    assert (made.point.client, made.point.server, made.point.output_sha256) == ({}, {}, None)


def test_a_full_worker_refuses_with_its_status(tmp_path: Path) -> None:
    pace = {"max_num_seqs": 1, "max_queue": 1, "replay_tokens_per_second": 50}
    with replaying(tmp_path, **pace) as url:
        made = ran(tmp_path, target="worker", url=url, requests=6, concurrency=[6], warm_up=0)
    assert statuses(made).count("completed") == 2
    assert made.point.errors == {"http": 4, "timeout": 0, "protocol": 0}
    assert {row["error_status"] for row in made.rows} == {None, 503}


def test_an_open_loop_offers_what_was_asked_for(tmp_path: Path) -> None:
    with replaying(tmp_path, replay_tokens_per_second=200) as url:
        made = ran(tmp_path, target="worker", url=url, requests=24, arrival_rate=[40.0], arrivals="deterministic", scenario="burst")
    assert made.point.name == "r40"
    dispatch = made.point.dispatch
    assert dispatch is not None
    assert dispatch.offered == pytest.approx(40)
    assert [row["due_seconds"] for row in made.rows] == pytest.approx([place * 8 / 40 for place in range(3) for _ in range(8)])
    assert max(row["in_flight"] for row in made.rows) >= 8


def test_the_pipeline_calls_derender_for_every_event(tmp_path: Path) -> None:
    render, (derender, *_) = standing()
    settings = {"target": "pipeline", "render_url": render, "derender_url": derender, "requests": 3, "concurrency": [2]}
    with replaying(tmp_path) as url:
        made = ran(tmp_path, url=url, warm_up=0, **settings)
        assert made.point.tokens.prompt == metric(url, "prompt_tokens_total")
        assert made.point.tokens.output == metric(url, "generated_tokens_total")
        direct = ran(tmp_path, target="worker", url=url, requests=3, concurrency=[1])
    assert statuses(made) == ["completed"] * 3
    for row in made.rows:
        assert row["client_derender_calls"] == row["output_tokens"] + 1  # the last one for the end
        assert row["client_derender_ms"] + row["client_render_ms"] <= row["client_latency_ms"]
        assert row["client_ttft_ms"] > row["client_render_ms"]
    # The worker makes ids up from seed and place alone: what it was asked through render is the same as without.
    assert [row["output_sha256"] for row in made.rows] == [row["output_sha256"] for row in direct.rows]


def test_the_gateway_as_an_openai_server(tmp_path: Path) -> None:
    with pipeline(replay_worker(tmp_path)) as client:
        url = str(client.base_url)
        made = ran(tmp_path, url=f"{url}/v1", requests=4, concurrency=[1, 2], warm_up=0)
    assert [point.name for point in made.run.points] == ["c1", "c2"]
    assert made.run.server == {"model": "smollm2", "openai": url.rstrip("/")}
    for point in made.run.points:
        assert point.requests.completed == 4
        assert point.tokens.prompt_source == point.tokens.output_source == {"usage": 4}
        assert (point.server["total"].count, point.client["ttft"].count) == (4, 4)
        assert point.output_hashed == "text"
    asked = [row for row in made.rows if row["load"] == "c1"]
    assert made.run.points[0].tokens.output == sum(row["output_tokens"] for row in asked)


def test_a_gateways_error_event_is_its_servers_word(tmp_path: Path) -> None:
    with pipeline(Scripted(saying("The capital", break_after=1))) as client:
        made = ran(tmp_path, url=str(client.base_url), requests=2)
    assert made.code == 1
    assert statuses(made) == ["http", "http"]
    assert made.rows[0]["error_status"] == 502


def foreign(*, usage: bool) -> FastAPI:
    """An OpenAI server of another make: its models are someone's, it takes no fields but OpenAI's, it may tell no usage."""
    app = FastAPI()
    known = {"model", "messages", "max_tokens", "temperature", "seed", "stream", "stream_options"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "theirs", "object": "model", "owned_by": "someone"}]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        if "messages" not in body or body.keys() - known:
            return JSONResponse({"error": {"message": "no", "type": "x"}}, status_code=400)
        chunks = [{"choices": [{"index": 0, "delta": {"content": "a b"}}]} for _ in range(3)]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if usage:
            chunks.append({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}})
        return StreamingResponse(iter([*(encode(json.dumps(chunk)) for chunk in chunks), encode(DONE)]))

    return app


@pytest.mark.parametrize(("usage", "source", "tokens"), [(True, "usage", 6), (False, "chunks", 3)])
def test_any_openai_server_will_do(tmp_path: Path, usage: bool, source: str, tokens: int) -> None:
    with serving(foreign(usage=usage)) as url:
        made = ran(tmp_path, url=url, requests=3)
    assert statuses(made) == ["completed"] * 3
    assert {(row["output_tokens"], row["output_tokens_source"]) for row in made.rows} == {(tokens, source)}
    assert made.run.configuration["ignore_eos"] is False
    assert made.point.server == {}
    with (made.folder / "requests.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["server_total_ms"] for row in table] == ["", "", ""]
    assert [row["output_tokens"] for row in table] == [str(tokens)] * 3


def test_a_refusal_for_now_is_a_failure_of_its_request(tmp_path: Path) -> None:
    """Not one of the bench: 429 says nothing against the requests themselves."""
    app = FastAPI()

    @app.post("/inference/v1/generate")
    async def generate(request: Request) -> Response:
        return refusal(429, "slow\ndown") if await request.json() else refusal(400, "empty")

    with serving(app) as url:
        made = ran(tmp_path, target="worker", url=url, requests=2)
    assert made.code == 1
    assert [(row["error_kind"], row["error_status"], row["error_message"]) for row in made.rows] == [
        ("http", 429, "429: slow down")
    ] * 2


@pytest.mark.parametrize("concurrency", [1, 5])
def test_there_are_as_many_connections_as_requests_run_at_once(tmp_path: Path, concurrency: int) -> None:
    """Kept open and used again: none waits for another's."""
    app, seen = replay_worker(tmp_path), set()

    @app.middleware("http")
    async def note(request: Request, call_next: Any) -> Response:
        seen.add(request.client.port if request.client else None)
        response: Response = await call_next(request)
        return response

    with serving(app) as url:
        made = ran(tmp_path, target="worker", url=url, requests=30, concurrency=[concurrency])
    assert statuses(made) == ["completed"] * 30
    assert len(seen) <= concurrency
