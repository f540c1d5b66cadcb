"""What a run is remembered as: `run.json`. Numbers of the client's clock and the server's stand apart; none is made of both."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from protocol.base import Closed
from tandem.bench import measure
from tandem.bench.errors import ERROR_KINDS
from tandem.bench.load import ClosedLoop, Load, OpenLoop
from tandem.bench.saturation import Dispatch, Saturation, dispatch_of, saturation_of
from tandem.bench.seen import Attempt

FORMAT = 1
MAX_EXAMPLES = 5


class Spread(Closed):
    """Of `count` values, at least one. Percentiles are interpolated linearly."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Rates(Closed):
    """A second, from the first sending to the last end. Tokens are those of whole answers."""

    requests: float
    output_tokens: float
    prompt_tokens: float | None


class Requests(Closed):
    """`unfinished` were running when the bench was stopped."""

    sent: int
    completed: int
    failed: int
    unfinished: int


class Tokens(Closed):
    """Of whole answers; `…_source`: how many requests' counts come from where. None where no server told."""

    prompt: int | None
    prompt_source: dict[str, int]
    output: int
    output_source: dict[str, int]


class Example(Closed):
    kind: str
    message: str
    count: int


class Point(Closed):
    """One load and what came of it. Times of `client` and `server` are in milliseconds; a metric that nothing was known of is not
    there."""

    name: str
    load: dict[str, Any]
    seconds: float
    requests: Requests
    errors: dict[str, int]
    examples: list[Example]
    finish_reasons: dict[str, int]
    rates: Rates | None
    tokens: Tokens
    client: dict[str, Spread]
    server: dict[str, Spread]
    dispatch: Dispatch | None
    saturation: Saturation
    output_sha256: str | None
    output_hashed: Literal["ids", "text"] | None


class Run(Closed):
    """`configuration`: what was asked for. `definitions`: what each metric is."""

    format: int = FORMAT
    version: str
    started_at: str
    interrupted: bool = False
    configuration: dict[str, Any]
    server: dict[str, Any]
    environment: dict[str, Any]
    definitions: dict[str, str] = Field(default_factory=dict)
    points: list[Point]


CLIENT: dict[str, str] = {
    "ttft": "time to first token: from sending the request to the first output",
    "tpot": "time per output token: from the first output to the last, over all tokens but one; of requests with two or more",
    "inter_token": "between two arrivals of output, shared evenly by the tokens of the later one; over all requests, ids counted",
    "inter_chunk": "between two chunks with output, where nobody tells how many tokens each has; over all requests",
    "longest_silence": "the longest time between two arrivals of one request",
    "latency": "from sending the request to the end of its stream",
    "render": "the call to render (pipeline)",
    "derender_call": "one call to derender, over all requests (pipeline)",
}
SERVER: dict[str, str] = {
    "queue": "enqueue to first prefill, as the server tells",
    "ttft": "enqueue to first token, as the server tells",
    "execution": "first prefill to the end, as the server tells",
    "total": "queue and execution, as the server tells",
}
DEFINITIONS = {
    **{f"client.{name}": text for name, text in CLIENT.items()},
    **{f"server.{name}": text for name, text in SERVER.items()},
    "percentiles": "interpolated linearly between the two nearest ranks",
    "rates": "whole answers and their tokens, over the time from the first sending to the last end",
}


def name_of(load: Load) -> str:
    return f"c{load.concurrency}" if isinstance(load, ClosedLoop) else f"r{load.rate:g}"


def described(load: Load) -> dict[str, Any]:
    if isinstance(load, ClosedLoop):
        return {"loop": "closed", "concurrency": load.concurrency}
    return {"loop": "open", "arrival_rate": load.rate, "arrivals": load.arrivals, "max_in_flight": load.max_in_flight}


def spread(values: Iterable[float | None], scale: float = 1000.0) -> Spread | None:
    """Of those that are known, times `scale`."""
    known = [value * scale for value in values if value is not None]
    if not known:
        return None
    tiers = {f"p{percent}": measure.percentile(known, percent) for percent in (50, 90, 95, 99)}
    return Spread(count=len(known), mean=sum(known) / len(known), max=max(known), **tiers)


def point(load: Load, attempts: Sequence[Attempt], loop_lags: Sequence[float] = ()) -> Point:
    """`attempts` are all that were sent, in any order; `loop_lags` as `saturation` has them."""
    attempts = sorted(attempts, key=lambda attempt: attempt.request.index)
    answers = [attempt.answer for attempt in attempts if attempt.answer is not None]
    failures = [attempt.failure for attempt in attempts if attempt.failure is not None]
    seconds = max((one.ended for one in attempts), default=0.0) - min((one.sent for one in attempts), default=0.0)
    kinds = Counter(failure.kind for failure in failures)
    messages = Counter((failure.kind, failure.message) for failure in failures)
    tokens = Tokens(
        prompt=_sum(answer.prompt_tokens for answer in answers),
        prompt_source=_counted(answer.prompt_source for answer in answers),
        output=sum(answer.output_tokens for answer in answers),
        output_source=_counted(answer.output_source for answer in answers),
    )
    dispatch = dispatch_of(attempts) if isinstance(load, OpenLoop) else None
    hashes = [answer.output_sha256 for answer in answers]
    whole = len(answers) == len(attempts) and bool(answers) and None not in hashes
    return Point(
        name=name_of(load),
        load=described(load),
        seconds=seconds,
        requests=Requests(
            sent=len(attempts),
            completed=len(answers),
            failed=len(failures),
            unfinished=len(attempts) - len(answers) - len(failures),
        ),
        errors={kind: kinds[kind] for kind in ERROR_KINDS},
        examples=[
            Example(kind=kind, message=message, count=count) for (kind, message), count in messages.most_common(MAX_EXAMPLES)
        ],
        finish_reasons=_counted(answer.finish_reason for answer in answers),
        rates=_rates(tokens, len(answers), seconds),
        tokens=tokens,
        client=_known(_CLIENT, attempts),
        server=_known(_SERVER, attempts),
        dispatch=dispatch,
        saturation=saturation_of(attempts, dispatch, loop_lags),
        output_sha256=measure.sha256_of_all([digest for digest in hashes if digest is not None]) if whole else None,
        output_hashed=answers[0].hashed if whole else None,
    )


def _rates(tokens: Tokens, completed: int, seconds: float) -> Rates | None:
    if seconds <= 0:
        return None
    prompt = None if tokens.prompt is None else tokens.prompt / seconds
    return Rates(requests=completed / seconds, output_tokens=tokens.output / seconds, prompt_tokens=prompt)


Values = Callable[[Sequence[Attempt]], Spread | None]


def _each(value: Callable[[Attempt], float | None]) -> Values:
    """Only of whole answers: half of one has a first token, but is no measure of a server."""
    return lambda attempts: spread(value(attempt) for attempt in attempts if attempt.answer is not None)


def _server(name: str) -> Values:
    """A field of the server's `timings`, which are milliseconds already."""

    def values(attempts: Sequence[Attempt]) -> Spread | None:
        timings = [attempt.answer.timings for attempt in attempts if attempt.answer is not None]
        return spread((getattr(one, name) for one in timings if one is not None), scale=1.0)

    return values


def _stages(name: str) -> Values:
    return lambda attempts: spread(
        stage.seconds for attempt in attempts if attempt.answer for stage in attempt.stages if stage.name == name
    )


def _gaps(*, between_tokens: bool) -> Values:
    """Chunks of an OpenAI stream are counted, but may have many tokens: their gaps are none between tokens."""

    def values(attempts: Sequence[Attempt]) -> Spread | None:
        own = [one for one in attempts if one.answer is not None and (one.answer.output_source == "ids") == between_tokens]
        return spread(gap for attempt in own for gap in measure.gaps(attempt.arrivals))

    return values


_CLIENT: dict[str, Values] = {
    "ttft": _each(measure.ttft),
    "tpot": _each(measure.tpot),
    "inter_token": _gaps(between_tokens=True),
    "inter_chunk": _gaps(between_tokens=False),
    "longest_silence": _each(lambda attempt: measure.longest_silence(attempt.arrivals)),
    "latency": _each(measure.latency),
    "render": _stages("render"),
    "derender_call": _stages("derender"),
}
_SERVER: dict[str, Values] = {
    "queue": _server("queue_ms"),
    "ttft": _server("ttft_ms"),
    "execution": _server("execution_ms"),
    "total": _server("total_ms"),
}


def _known(metrics: dict[str, Values], attempts: Sequence[Attempt]) -> dict[str, Spread]:
    found = {name: values(attempts) for name, values in metrics.items()}
    return {name: value for name, value in found.items() if value is not None}


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _counted(values: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(str(value) for value in values if value is not None))
