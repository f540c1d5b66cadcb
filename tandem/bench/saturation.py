"""Whether the bench itself kept up, and whether an open loop was one: when requests were due, and when they were sent."""

import asyncio
import time
from collections.abc import Sequence

from protocol.base import Closed
from tandem.bench.measure import percentile
from tandem.bench.seen import Attempt

MEDIAN_LAG_MS = 10.0
P99_LAG_MS = 100.0
LEAST_ACHIEVED = 0.95
RULE = (
    f"client_saturated: the bench's own event loop came to things more than {MEDIAN_LAG_MS:g} ms late in the median, or more than "
    f"{P99_LAG_MS:g} ms in the 99th percentile; or the requests of an open loop that did not have to wait for a place "
    f"(--max-in-flight) were sent as late; or, where none had to wait, fewer than {LEAST_ACHIEVED:.0%} of the offered requests a "
    "second were sent"
)
_PAUSE_SECONDS = 0.02


class Dispatch(Closed):
    """`offered` and `achieved`: requests a second that were due and that were sent, over the time from the first to the last; None
    where all were due at one moment. `lag_…`: milliseconds from due to sent, a wait for a place included. `held`: requests that had
    to wait for one."""

    offered: float | None
    achieved: float | None
    lag_p50: float
    lag_p99: float
    lag_max: float
    held: int
    held_max: float


class Saturation(Closed):
    """Whether times by the client's clock tell of the server, or of the bench. `loop_lag_…`: how late its event loop came to
    things, in milliseconds; None of a load that was too short to tell."""

    client_saturated: bool
    why: list[str]
    loop_lag_p50: float | None
    loop_lag_p99: float | None
    rule: str = RULE


async def watch_loop(lags: list[float]) -> None:
    """Until it is cancelled: appends how many seconds late the event loop woke this up, fifty times a second."""
    while True:
        due = time.perf_counter() + _PAUSE_SECONDS
        await asyncio.sleep(_PAUSE_SECONDS)
        lags.append(max(0.0, time.perf_counter() - due))


def lag(attempt: Attempt) -> float | None:
    """Seconds from due to sent."""
    return None if attempt.slot.due is None else attempt.sent - attempt.slot.due


def dispatch_of(attempts: Sequence[Attempt]) -> Dispatch | None:
    """Of the requests that were due at some time; None without any."""
    timed = [(one.slot.due, one.sent, one.slot.held) for one in attempts if one.slot.due is not None]
    if not timed:
        return None
    lags = [(sent - due) * 1000 for due, sent, _ in timed]
    first = min(due for due, _, _ in timed)
    later = sum(due > first for due, _, _ in timed)
    return Dispatch(
        offered=_rate(later, [due for due, _, _ in timed]),
        achieved=_rate(later, [sent for _, sent, _ in timed]),
        lag_p50=percentile(lags, 50),
        lag_p99=percentile(lags, 99),
        lag_max=max(lags),
        held=sum(held > 0 for _, _, held in timed),
        held_max=max(held for _, _, held in timed) * 1000,
    )


def saturation_of(attempts: Sequence[Attempt], dispatch: Dispatch | None, loop_lags: Sequence[float]) -> Saturation:
    """`loop_lags` in seconds, as `watch_loop` notes them."""
    own = [seconds * 1000 for seconds in loop_lags]
    why = _late(own, "the bench's own event loop was {late:.1f} ms late in the {tier}")
    if dispatch is not None:
        free = [late * 1000 for one in attempts if not one.slot.held and (late := lag(one)) is not None]
        why += _late(free, "requests were sent {late:.1f} ms late in the {tier}")
        offered, achieved = dispatch.offered, dispatch.achieved
        if not dispatch.held and offered is not None and achieved is not None and achieved < LEAST_ACHIEVED * offered:
            why.append(f"{achieved:.4g} requests a second were sent, {offered:.4g} were due")
    return Saturation(
        client_saturated=bool(why),
        why=why,
        loop_lag_p50=percentile(own, 50) if own else None,
        loop_lag_p99=percentile(own, 99) if own else None,
    )


def _late(lags: Sequence[float], words: str) -> list[str]:
    tiers = (("median", 50, MEDIAN_LAG_MS), ("99th percentile", 99, P99_LAG_MS)) if lags else ()
    measured = [(name, percentile(lags, percent), bound) for name, percent, bound in tiers]
    return [words.format(late=late, tier=name) for name, late, bound in measured if late > bound]


def _rate(later: int, times: Sequence[float]) -> float | None:
    """`later`: those that were due after the first moment, at which a whole burst may have been."""
    span = max(times) - min(times)
    return later / span if later and span > 0 else None
