"""The bench's arithmetic, on streams made by hand."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.bench import measure
from tandem.bench.load import ClosedLoop, OpenLoop
from tandem.bench.rows import rows_of
from tandem.bench.saturation import Dispatch, Saturation
from tandem.bench.seen import Arrival, Attempt, Slot, Stage
from tandem.bench.summary import point
from tests.bench.kit import answered, failed, timings


def test_one_token_an_event() -> None:
    """Sent at 1; tokens at 3, 4, 6; the end at 7."""
    attempt = answered((3, 1), (4, 1), (6, 1), sent=1, ended=7)
    assert measure.ttft(attempt) == 2
    assert measure.tpot(attempt) == 1.5
    assert measure.gaps(attempt.arrivals) == [1, 2]
    assert measure.longest_silence(attempt.arrivals) == 2
    assert measure.latency(attempt) == 6


def test_several_tokens_an_event_share_the_time_since_the_event_before() -> None:
    """Two tokens at 1, four at 3, one at 4: four gaps of half a second, one of a whole."""
    attempt = answered((1, 2), (3, 4), (4, 1))
    assert measure.gaps(attempt.arrivals) == [0.5, 0.5, 0.5, 0.5, 1]
    assert measure.tpot(attempt) == 3 / 6
    assert measure.longest_silence(attempt.arrivals) == 2


@pytest.mark.parametrize("arrivals", [[(1.0, 1)], [(1.0, 5)]])
def test_what_came_at_one_moment_has_no_pace(arrivals: list[tuple[float, int]]) -> None:
    attempt = answered(*arrivals)
    assert measure.tpot(attempt) is None
    assert measure.gaps(attempt.arrivals) == []
    assert measure.longest_silence(attempt.arrivals) is None


def test_an_answer_without_output_has_no_first_token() -> None:
    attempt = answered(ended=2)
    assert (measure.ttft(attempt), measure.tpot(attempt), measure.latency(attempt)) == (None, None, 2)


@given(st.lists(st.tuples(st.floats(0.001, 10), st.integers(1, 9)), min_size=1, max_size=30))
def test_gaps_add_up_to_the_time_between_first_and_last(steps: list[tuple[float, int]]) -> None:
    at, arrivals = 0.0, []
    for pause, tokens in steps:
        at += pause
        arrivals.append(Arrival(at, tokens))
    gaps = measure.gaps(arrivals)
    assert sum(gaps) == pytest.approx(arrivals[-1].at - arrivals[0].at)
    assert len(gaps) == sum(arrival.tokens for arrival in arrivals[1:])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    assert measure.percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)), abs=1e-6)


def test_throughput_by_stretches_and_chunks_share_what_the_server_counted() -> None:
    counted = answered((0.5, 1), (1.5, 3), (1.6, 1))
    assert measure.throughput([counted], 1.0) == [1, 4]
    assert measure.throughput([counted], 0.5) == [0, 2, 0, 8]
    chunks = answered((0.5, 1), (1.5, 1), output_tokens=6, output_source="usage")
    assert measure.throughput([chunks, counted], 1.0) == [4, 7]


def test_a_point_sums_up_whole_answers_only() -> None:
    whole = answered((2, 1), (4, 1), sent=1, ended=5, index=1, prompt_tokens=10, prompt_source="ids")
    other = answered((3, 2), (5, 2), sent=2, ended=6, index=0, prompt_tokens=20, prompt_source="ids")
    made = point(ClosedLoop(2), [whole, other, failed("timeout", (8, 9)), failed("http"), failed("http")])
    assert made.name == "c2"
    assert made.requests.model_dump() == {"sent": 5, "completed": 2, "failed": 3, "unfinished": 0}
    assert made.errors == {"http": 2, "timeout": 1, "protocol": 0}
    assert [(one.kind, one.count) for one in made.examples] == [("http", 2), ("timeout", 1)]
    assert (made.tokens.prompt, made.tokens.output) == (30, 6)
    assert made.seconds == 9
    assert made.rates is not None
    assert made.rates.output_tokens == pytest.approx(6 / 9)
    ttft = made.client["ttft"]
    assert (ttft.count, ttft.mean, ttft.p50, ttft.max) == (2, 1000, 1000, 1000)
    assert (made.client["inter_token"].count, made.client["inter_token"].max) == (3, 2000)
    assert made.client["latency"].p99 == 4000
    assert made.output_sha256 is None


def test_the_clocks_are_never_mixed() -> None:
    """The server's numbers are those it told, to the digit, however little they fit the client's."""
    told = answered((1, 1), (2, 1), timings=timings(5, 7, 11))
    silent = answered((1, 1), (2, 1), index=1)
    made = point(ClosedLoop(1), [told, silent])
    assert {name: (values.count, values.mean) for name, values in made.server.items()} == {
        "queue": (1, 5),
        "ttft": (1, 7),
        "execution": (1, 11),
        "total": (1, 16),
    }
    assert made.client["ttft"].count == 2
    first, second = rows_of({"c1": [told, silent]})
    assert (first["client_ttft_ms"], first["server_ttft_ms"]) == (1000, 7)
    assert [value for name, value in second.items() if name.startswith("server_")] == [None] * 5


def test_gaps_of_chunks_are_not_those_of_tokens() -> None:
    chunks = answered((1, 1), (2, 1), output_tokens=9, output_source="usage")
    made = point(ClosedLoop(1), [chunks])
    assert "inter_token" not in made.client
    assert made.client["inter_chunk"].mean == 1000
    assert made.client["tpot"].mean == 125
    (row,) = rows_of({"c1": [chunks]})
    assert (row["client_inter_chunk_p50_ms"], row["client_inter_token_p50_ms"]) == (1000, None)


def test_stages_are_counted_call_by_call() -> None:
    made = answered((1, 1), stages=[Stage("render", 0.1), Stage("derender", 0.2), Stage("derender", 0.4)])
    (row,) = rows_of({"c1": [made]})
    assert (row["client_render_ms"], row["client_derender_calls"], row["client_derender_ms"]) == (100, 2, 600)
    assert point(ClosedLoop(1), [made]).client["derender_call"].mean == pytest.approx(300)


def test_the_hash_of_a_run_is_of_its_outputs_in_order() -> None:
    some = [answered((1, 1), index=index, output_sha256=digest, hashed="ids") for index, digest in [(1, "b"), (0, "a")]]
    made = point(ClosedLoop(1), some)
    assert made.output_sha256 == hashlib.sha256(b"a\nb\n").hexdigest()
    assert made.output_hashed == "ids"


def open_loop(*times: tuple[float, float, float]) -> list[Attempt]:
    """Attempts as (due, sent, held)."""
    return [answered((sent + 1, 1), sent=sent, slot=Slot(due, held), index=i) for i, (due, sent, held) in enumerate(times)]


def judged(attempts: list[Attempt], *loop_lags: float) -> tuple[Dispatch, Saturation]:
    made = point(OpenLoop(1, "poisson", 1), attempts, loop_lags)
    assert made.dispatch is not None
    return made.dispatch, made.saturation


def test_dispatch_in_time() -> None:
    dispatch, saturation = judged(open_loop((0, 0, 0), (1, 1.001, 0), (2, 2.002, 0)), 0.001, 0.003)
    assert (dispatch.offered, dispatch.achieved) == (1, pytest.approx(2 / 2.002))
    assert (dispatch.lag_p50, dispatch.lag_max, dispatch.held) == (pytest.approx(1), pytest.approx(2), 0)
    assert (saturation.client_saturated, saturation.why, saturation.loop_lag_p50) == (False, [], 2)


def test_a_burst_counts_as_one_moment() -> None:
    dispatch, _ = judged(open_loop(*[(at, at, 0) for at in (0, 0, 0, 3, 3, 3, 6, 6, 6)]))
    assert dispatch.offered == dispatch.achieved == 1


@pytest.mark.parametrize(
    ("late", "why"),
    [
        ([0.02] * 4, ["median"]),
        ([0.0] * 50 + [0.5, 0.5], ["99th percentile"]),
        ([0.0, 0.005, 0.009, 0.3], ["99th percentile", "requests a second were sent"]),
    ],
)
def test_a_client_that_is_late_says_so(late: list[float], why: list[str]) -> None:
    _, saturation = judged(open_loop(*[(place, place + lag, 0) for place, lag in enumerate(late)]))
    assert saturation.client_saturated
    assert len(saturation.why) == len(why)
    assert all(words in reason for words, reason in zip(why, saturation.why, strict=True))
    assert "--max-in-flight" in saturation.rule


def test_waiting_for_a_place_is_no_fault_of_the_client() -> None:
    dispatch, saturation = judged(open_loop((0, 0, 0), (1, 5, 4.0), (2, 9, 7.0)))
    assert (dispatch.held, dispatch.held_max, dispatch.lag_max) == (2, 7000, 7000)
    assert not saturation.client_saturated


def test_a_busy_event_loop_is_one_in_either_loop() -> None:
    closed = point(ClosedLoop(1), [answered((1, 1))], [0.011] * 9)
    assert closed.dispatch is None
    assert closed.saturation.client_saturated
    assert closed.saturation.why == ["the bench's own event loop was 11.0 ms late in the median"]
    assert not point(ClosedLoop(1), [answered((1, 1))], [0.009] * 9).saturation.client_saturated
    assert point(ClosedLoop(1), [answered((1, 1))], [0.0] * 50 + [0.3] * 2).saturation.client_saturated
