"""How an answer is written: engine steps as typed events over server-sent events, or gathered into one response."""

import asyncio
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from generate_worker.admission import Call
from generate_worker.engine.base import Candidate, ConnectionCut, DoneStep, Generation, Score, Step, Summary, TokenStep
from protocol import sse
from protocol.errors import TandemError
from protocol.events import DoneChoice, DoneEvent, ErrorEvent, GenerateEvent, TokenChoice, TokenEvent, encode_event
from protocol.generate import GenerateChoice, GenerateResponse
from protocol.logprobs import LOWEST, TokenLogprob, TokenLogprobEntry, TokenLogprobs
from protocol.usage import PromptTokensDetails, Usage
from service_kit.disconnect import while_connected

KEEP_ALIVE_SECONDS = 15.0


class EventStream(Response):
    """Sends a generation as it comes. However the exchange ends, the generation is closed: a client that leaves frees its slot."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, call: Call) -> None:
        super().__init__()
        self.raw_headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        self._generation, self._call = generation, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(Request(scope, receive), self._send_all(send))
        except ClientDisconnect:
            return  # nobody is left to answer
        finally:
            self._generation.close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        writer = EventWriter(self._call)
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        steps = await self._generation.next()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": sse.KEEP_ALIVE, "more_body": True})
                    continue
                if not steps:
                    break
                body = b"".join(encode_event(writer.event(step)) for step in steps)
                await send({"type": "http.response.body", "body": body, "more_body": True})
            last = sse.encode(sse.DONE)
        except ConnectionCut:
            return
        except TandemError as error:
            last = encode_event(ErrorEvent(request_id=self._call.engine.request_id, error=error.info))
        await send({"type": "http.response.body", "body": last, "more_body": False})


class CutShort(Response):
    """The beginning of an answer, and no more: the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


class EventWriter:
    """Steps of one request as events. The drawn seed and, if asked for, the prompt's ids go out with the first."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._first = True

    def event(self, step: Step) -> GenerateEvent:
        call, first = self._call, self._first
        self._first = False
        seed = call.reported_seed if first else None
        prompt = call.engine.prompt_ids if first and call.echo_prompt else None
        if isinstance(step, TokenStep):
            choice = TokenChoice(
                index=step.choice, token_index=step.token_index, token_ids=list(step.token_ids), logprobs=_logprobs(step.scores)
            )
            return TokenEvent(
                request_id=call.engine.request_id, created=call.created, choices=[choice], seed=seed, prompt_token_ids=prompt
            )
        done = DoneChoice(
            index=step.choice,
            token_index=step.token_index,
            token_ids=list(step.token_ids),
            logprobs=_logprobs(step.scores),
            output_tokens=step.output_tokens,
            finish_reason=step.finish_reason,
            stop_reason=step.stop_reason,
        )
        return DoneEvent(
            request_id=call.engine.request_id,
            created=call.created,
            choices=[done],
            usage=step.summary and _usage(call, step.summary),
            timings=step.summary and step.summary.timings,
            seed=seed,
            prompt_token_ids=prompt,
        )


async def gather(generation: Generation, call: Call, model_name: str) -> GenerateResponse:
    """The whole answer: what a stream would have brought, so of a resumed request the ids after the resumed ones. Raises the error
    that the request failed with."""
    ids: list[list[int]] = [[] for _ in range(call.engine.params.n)]
    scores: list[list[Score]] = [[] for _ in ids]
    ends: dict[int, DoneStep] = {}
    while steps := await generation.next():
        for step in steps:
            ids[step.choice] += step.token_ids
            scores[step.choice] += step.scores
            if isinstance(step, DoneStep):
                ends[step.choice] = step
    summary = next(end.summary for end in ends.values() if end.summary is not None)
    choices = [
        GenerateChoice(
            index=index,
            token_ids=ids[index],
            logprobs=_logprobs(scores[index]),
            finish_reason=ends[index].finish_reason,
            stop_reason=ends[index].stop_reason,
        )
        for index in range(len(ids))
    ]
    return GenerateResponse(
        request_id=call.engine.request_id,
        created=call.created,
        model=model_name,
        choices=choices,
        usage=_usage(call, summary),
        timings=summary.timings,
        seed=call.reported_seed,
        prompt_token_ids=call.engine.prompt_ids if call.echo_prompt else None,
        prompt_logprobs=[_by_id(score) for score in summary.prompt_scores] if summary.prompt_scores else None,
    )


def _by_id(score: Score | None) -> dict[int, TokenLogprob] | None:
    """As vLLM tells a prompt's: the token that is there and the best candidates, by id. None for the first token."""
    return None if score is None else {one.token_id: _candidate(one) for one in (*score.best, score.chosen)}


def _usage(call: Call, summary: Summary) -> Usage:
    usage = Usage.of(len(call.engine.prompt_ids), summary.completion_tokens)
    return usage.model_copy(update={"prompt_tokens_details": PromptTokensDetails(cached_tokens=summary.cached_tokens)})


def _logprobs(scores: Iterable[Score]) -> TokenLogprobs | None:
    entries = [
        TokenLogprobEntry(
            token_id=score.chosen.token_id,
            logprob=max(score.chosen.logprob, LOWEST),
            rank=score.chosen.rank,
            top_logprobs=[_candidate(one) for one in score.best],
        )
        for score in scores
    ]
    return TokenLogprobs(content=entries) if entries else None


def _candidate(one: Candidate) -> TokenLogprob:
    return TokenLogprob(token_id=one.token_id, logprob=max(one.logprob, LOWEST), rank=one.rank)
