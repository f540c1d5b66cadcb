"""A whole pipeline on real ports: render and derender as they are, workers of every behaviour, a gateway before them."""

import asyncio
import atexit
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from derender_service.app import DerenderSettings
from derender_service.app import create_app as derender_app
from gateway.app import GatewaySettings
from gateway.app import create_app as gateway_app
from generate_worker.app import WorkerSettings
from generate_worker.app import create_app as worker_app
from protocol.errors import ErrorInfo
from protocol.events import DoneChoice, DoneEvent, ErrorEvent, TokenChoice, TokenEvent, encode_event
from protocol.generate import FinishReason, Timings
from protocol.sse import DONE, encode
from protocol.usage import Usage
from render_service.app import RenderSettings
from render_service.app import create_app as render_app
from tests.live import serving
from tests.tokenizers import MAX_MODEL_LEN, folder, profile

JsonObject = dict[str, Any]
MODEL = "smollm2"


def ids_of(text: str, model: str = MODEL) -> list[int]:
    return profile(model).tokenizer.encode(text, add_special_tokens=False).ids


class Cut(Exception):
    """Raised by a scripted worker to break its connection."""


@dataclass
class Scripted:
    """A worker that does as it is told: `play` yields the bytes of a stream, or raises `Cut`. It remembers what it was asked."""

    play: Callable[[JsonObject], AsyncIterator[bytes]]
    refuse: Response | None = None
    asked: list[JsonObject] = field(default_factory=list)
    open_streams: int = 0
    left_early: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        async def health() -> JsonObject:
            return {"status": "ok"}

        @app.post("/inference/v1/generate")
        async def generate(request: Request) -> Response:
            self.asked.append(await request.json())
            if self.refuse is not None:
                return self.refuse
            return StreamingResponse(self._watched(self.asked[-1]), media_type="text/event-stream")

        return app

    async def _watched(self, request: JsonObject) -> AsyncIterator[bytes]:
        self.open_streams += 1
        try:
            async for piece in self.play(request):
                yield piece
        except (asyncio.CancelledError, GeneratorExit):
            self.left_early += 1
            raise
        finally:
            self.open_streams -= 1


def token(request: JsonObject, index: int, position: int, token_id: int) -> bytes:
    choice = TokenChoice(index=index, token_index=position, token_ids=[token_id])
    return encode_event(
        TokenEvent(request_id=request["request_id"], created=1, choices=[choice], seed=7 if position == 0 else None)
    )


def done(request: JsonObject, index: int, count: int, *, last: bool = True, reason: FinishReason = FinishReason.LENGTH) -> bytes:
    choice = DoneChoice(index=index, token_index=count, token_ids=[], output_tokens=count, finish_reason=reason)
    usage = Usage.of(len(request["token_ids"]), count) if last else None
    timings = Timings(queue_ms=0, ttft_ms=1, execution_ms=2, total_ms=2, tokens_per_s=3) if last else None
    return encode_event(DoneEvent(request_id=request["request_id"], created=1, choices=[choice], usage=usage, timings=timings))


def failure(request: JsonObject, message: str, code: int = 500) -> bytes:
    return encode_event(ErrorEvent(request_id=request["request_id"], error=ErrorInfo(message=message, type="X", code=code)))


def saying(text: str, *, break_after: int | None = None, model: str = MODEL) -> Callable[[JsonObject], AsyncIterator[bytes]]:
    """A worker's play: the text's ids one by one, on from `output_token_ids`, broken off after so many if told."""

    async def play(request: JsonObject) -> AsyncIterator[bytes]:
        output = ids_of(text, model)
        for position in range(len(request.get("output_token_ids") or []), len(output)):
            if position == break_after:
                raise Cut
            yield token(request, 0, position, output[position])
            await asyncio.sleep(0.002)
        yield done(request, 0, len(output))
        yield encode(DONE)

    return play


_standing = ExitStack()
atexit.register(_standing.close)


@cache
def standing(model: str = MODEL) -> tuple[str, list[str]]:
    """The addresses of a render service and of two derender replicas, which serve all tests: they keep nothing."""
    render = _standing.enter_context(serving(render_app(RenderSettings(**served(model)))))
    derenders = [_standing.enter_context(serving(derender_app(DerenderSettings(**served(model))))) for _ in range(2)]
    return render, derenders


def served(model: str) -> JsonObject:
    """Settings of a text service of one of the tests' tokenizers, under its short name."""
    if model == MODEL:
        return {"model": MODEL}
    return {"model": str(folder(model)), "served_model_name": model, "max_model_len": MAX_MODEL_LEN}


@contextmanager
def pipeline(*workers: Scripted | FastAPI, model: str = MODEL, derenders: int = 1, **changes: Any) -> Iterator[httpx.Client]:
    """A client of a gateway over real services and the given workers."""
    render, replicas = standing(model)
    with ExitStack() as stack:
        apps = [worker.app() if isinstance(worker, Scripted) else worker for worker in workers]
        addresses = [stack.enter_context(serving(app)) for app in apps]
        behind = {"render_url": render, "derender_url": ",".join(replicas[:derenders]), "worker_url": ",".join(addresses)}
        url = stack.enter_context(serving(gateway_app(GatewaySettings(**{**behind, **changes}))))
        yield stack.enter_context(httpx.Client(base_url=url, timeout=30))


def replay_worker(tmp_path: Path, *lines: JsonObject, model: str = MODEL, **changes: Any) -> FastAPI:
    """Tandem's own worker, playing back. It keeps no prompt, so that what is asked twice is answered alike."""
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(json.dumps(line) for line in lines))
    own = profile(model)
    settings: JsonObject = {"replay_vocab_size": own.vocab_size, "replay_eos_token_id": own.eos_token_ids[0], "max_model_len": 8192}
    settings |= {"engine": "replay", "script": script if lines else None, "enable_prefix_caching": False}
    return worker_app(WorkerSettings(model=model, **{**settings, **changes}))


def chat(**changes: Any) -> JsonObject:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **changes}


def events_of(response: httpx.Response) -> list[Any]:
    """The payloads of an SSE answer, JSON read, `[DONE]` as it is."""
    data = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    return [piece if piece == DONE else json.loads(piece) for piece in data]


def content_of(events: list[Any]) -> str:
    choices = [choice for event in events if event != DONE for choice in event.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def refusal(status: int, message: str, **headers: str) -> JSONResponse:
    error = {"message": message, "type": "ServiceUnavailableError", "param": None, "code": status}
    return JSONResponse({"error": error}, status_code=status, headers=headers)
