"""Whether an open loop was one: when requests were due, when they were sent, and whose fault a difference is."""

from collections.abc import Sequence

from protocol.base import Closed
from tandem.bench.measure import percentile
from tandem.bench.seen import Attempt

MEDIAN_LAG_MS = 10.0
P99_LAG_MS = 100.0
LEAST_ACHIEVED = 0.95
RULE = (
    f"client_saturated: of the requests that did not have to wait for a place (--max-in-flight), the median was sent more than "
    f"{MEDIAN_LAG_MS:g} ms late, or the 99th percentile more than {P99_LAG_MS:g} ms; or, where none had to wait, fewer than "
    f"{LEAST_ACHIEVED:.0%} of the offered requests a second were sent"
)


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
    client_saturated: bool
    why: list[str]
    rule: str = RULE


def lag(attempt: Attempt) -> float | None:
    """Seconds from due to sent."""
    return None if attempt.slot.due is None else attempt.sent - attempt.slot.due


def dispatch_of(attempts: Sequence[Attempt]) -> Dispatch | None:
    """Of the requests that were due at some time; None without any."""
    timed = [(one.slot.due, one.sent, one.slot.held) for one in attempts if one.slot.due is not None]
    if not timed:
        return None
    lags = [(sent - due) * 1000 for due, sent, _ in timed]
    free = [(sent - due) * 1000 for due, sent, held in timed if not held]
    first = min(due for due, _, _ in timed)
    later = sum(due > first for due, _, _ in timed)
    offered, achieved = _rate(later, [due for due, _, _ in timed]), _rate(later, [sent for _, sent, _ in timed])
    held = len(timed) - len(free)
    why = _why(free, offered, achieved, held)
    return Dispatch(
        offered=offered,
        achieved=achieved,
        lag_p50=percentile(lags, 50),
        lag_p99=percentile(lags, 99),
        lag_max=max(lags),
        held=held,
        held_max=max(held for _, _, held in timed) * 1000,
        client_saturated=bool(why),
        why=why,
    )


def _why(lags: Sequence[float], offered: float | None, achieved: float | None, held: int) -> list[str]:
    why = []
    if lags and (median := percentile(lags, 50)) > MEDIAN_LAG_MS:
        why.append(f"the median request was sent {median:.1f} ms late")
    if lags and (late := percentile(lags, 99)) > P99_LAG_MS:
        why.append(f"the 99th percentile was sent {late:.1f} ms late")
    if not held and offered is not None and achieved is not None and achieved < LEAST_ACHIEVED * offered:
        why.append(f"{achieved:.4g} requests a second were sent, {offered:.4g} were due")
    return why


def _rate(later: int, times: Sequence[float]) -> float | None:
    """`later`: those that were due after the first moment, at which a whole burst may have been."""
    span = max(times) - min(times)
    return later / span if later and span > 0 else None
