"""One row for each request: what `requests.csv` and `requests.json` hold. Milliseconds, but where the name says seconds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tandem.bench import measure
from tandem.bench.saturation import lag
from tandem.bench.seen import Attempt

Row = dict[str, Any]


def rows_of(attempts: Mapping[str, Sequence[Attempt]]) -> list[Row]:
    """Load by load, each in the order of its requests."""
    return [
        {"load": load, **_row(attempt)}
        for load, some in attempts.items()
        for attempt in sorted(some, key=lambda one: one.request.index)
    ]


def _row(attempt: Attempt) -> Row:
    answer, failure, timings = attempt.answer, attempt.failure, attempt.answer.timings if attempt.answer else None
    between = measure.gaps(attempt.arrivals)
    unit = "token" if answer and answer.output_source == "ids" else "chunk"
    middle, high = (_ms(measure.percentile(between, percent) if between else None) for percent in (50, 99))
    return {
        "index": attempt.request.index,
        "kind": attempt.request.kind,
        "status": "completed" if answer else "failed" if failure else "unfinished",
        "due_seconds": _rounded(attempt.slot.due, 6),
        "sent_seconds": _rounded(attempt.sent, 6),
        "ended_seconds": _rounded(attempt.ended, 6),
        "dispatch_lag_ms": _ms(lag(attempt)),
        "held_ms": None if attempt.slot.due is None else _ms(attempt.slot.held),
        "in_flight": attempt.in_flight,
        "error_kind": failure.kind if failure else None,
        "error_status": failure.status if failure else None,
        "error_message": failure.message if failure else None,
        "request_id": answer.request_id if answer else None,
        "finish_reason": answer.finish_reason if answer else None,
        "prompt_tokens": answer.prompt_tokens if answer else None,
        "prompt_tokens_source": answer.prompt_source if answer else None,
        "output_tokens": answer.output_tokens if answer else None,
        "output_tokens_source": answer.output_source if answer else None,
        "arrivals": len(attempt.arrivals),
        "client_ttft_ms": _ms(measure.ttft(attempt)),
        "client_tpot_ms": _ms(measure.tpot(attempt)),
        "client_inter_token_p50_ms": middle if unit == "token" else None,
        "client_inter_token_p99_ms": high if unit == "token" else None,
        "client_inter_chunk_p50_ms": middle if unit == "chunk" else None,
        "client_inter_chunk_p99_ms": high if unit == "chunk" else None,
        "client_longest_silence_ms": _ms(measure.longest_silence(attempt.arrivals)),
        "client_latency_ms": _ms(measure.latency(attempt)),
        "client_render_ms": _stage(attempt, "render"),
        "client_derender_calls": sum(stage.name == "derender" for stage in attempt.stages) or None,
        "client_derender_ms": _stage(attempt, "derender"),
        "server_queue_ms": timings.queue_ms if timings else None,
        "server_ttft_ms": timings.ttft_ms if timings else None,
        "server_execution_ms": timings.execution_ms if timings else None,
        "server_total_ms": timings.total_ms if timings else None,
        "server_tokens_per_second": timings.tokens_per_s if timings else None,
        "request_sha256": attempt.request.sha256,
        "output_sha256": answer.output_sha256 if answer else None,
        "output_hashed": answer.hashed if answer else None,
    }


def _stage(attempt: Attempt, name: str) -> float | None:
    return _total(stage.seconds for stage in attempt.stages if stage.name == name)


def _total(seconds: Iterable[float]) -> float | None:
    each = list(seconds)
    return _ms(sum(each)) if each else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
