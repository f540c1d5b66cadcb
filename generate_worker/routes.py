"""The worker's HTTP routes."""

import time
from contextlib import closing
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from fastapi.responses import Response

from generate_worker.admission import Call, Limits, admit
from generate_worker.engine.base import ConnectionCut, Engine
from generate_worker.event_stream import CutShort, EventStream, gather
from protocol.generate import AbortRequest, AbortResponse, GenerateRequest, GenerateResponse
from protocol.models import ModelCard, ModelList
from service_kit.body import documented, json_response, parse
from service_kit.disconnect import while_connected
from service_kit.offload import by_size, offload

router = APIRouter(tags=["generate"])

_STREAM = "Typed `token`, `done` and `error` events, each a valid vLLM stream chunk too; `data: [DONE]` ends the stream."


@dataclass(frozen=True, slots=True)
class Worker:
    """What the routes work with: `app.state.worker`. `root` is what `--model` said."""

    engine: Engine
    limits: Limits
    root: str
    since: int = field(default_factory=lambda: int(time.time()))


@router.post(
    "/inference/v1/generate",
    **documented(GenerateRequest, answers=(GenerateResponse,), stream=_STREAM, errors=(400, 404, 413, 503)),
)
async def generate(request: Request) -> Response:
    """Token ids in, token ids out: streamed as they are sampled, or as one answer."""
    worker: Worker = request.app.state.worker

    def read(body: bytes) -> Call:
        return admit(parse(GenerateRequest, body), worker.limits)

    body = await request.body()
    # A grammar may take long however small it is. (That the name may stand in a text does no harm: a hop to a thread is cheap.)
    call = await (offload(lambda: read(body)) if b'"structured_outputs"' in body else by_size(body, read))
    generation = worker.engine.submit(call.engine)
    if call.stream:
        return EventStream(generation, call)
    try:
        with closing(generation):
            answer = await while_connected(request, gather(generation, call, worker.limits.model_name))
    except ConnectionCut:
        return CutShort()
    return json_response(answer.wire())


@router.post("/inference/v1/abort_requests", **documented(AbortRequest, answers=(AbortResponse,), errors=(400, 413)))
async def abort_requests(request: Request) -> Response:
    """Ends requests by id, running or waiting; their streams end in `done` with `abort`."""
    worker: Worker = request.app.state.worker
    wanted = await by_size(await request.body(), lambda body: parse(AbortRequest, body))
    aborted = sum(worker.engine.abort(request_id) for request_id in dict.fromkeys(wanted.request_ids))
    return json_response(AbortResponse(aborted=aborted).wire())


@router.get("/v1/models", **documented(answers=(ModelList,), errors=()))
async def models(request: Request) -> Response:
    """The one model that is served."""
    worker: Worker = request.app.state.worker
    limits = worker.limits
    card = ModelCard(id=limits.model_name, created=worker.since, root=worker.root, max_model_len=limits.max_model_len)
    return json_response(ModelList(data=[card]).wire())
