"""The arithmetic of one request and of many values. Seconds in, seconds out; all by the client's clock."""

import hashlib
import math
from collections.abc import Sequence
from itertools import pairwise

from tandem.bench.seen import Arrival, Attempt


def percentile(values: Sequence[float], percent: float) -> float:
    """Of at least one value, in any order: between the two nearest ranks it is interpolated linearly, as numpy does by default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def ttft(attempt: Attempt) -> float | None:
    """From sending to the first output; None where none came."""
    return attempt.arrivals[0].at - attempt.sent if attempt.arrivals else None


def latency(attempt: Attempt) -> float | None:
    """From sending to the end of a whole answer."""
    return attempt.answer.ended - attempt.sent if attempt.answer is not None else None


def tpot(attempt: Attempt) -> float | None:
    """Of a whole answer: from the first output to the last, over all tokens but one. None for fewer than two tokens, and where all
    came at one moment, which tells nothing of a pace."""
    if attempt.answer is None or attempt.answer.output_tokens < 2 or len(attempt.arrivals) < 2:
        return None
    return (attempt.arrivals[-1].at - attempt.arrivals[0].at) / (attempt.answer.output_tokens - 1)


def gaps(arrivals: Sequence[Arrival]) -> list[float]:
    """Between tokens: the time between two arrivals, shared evenly by the tokens of the later one. So an arrival of k tokens after
    g seconds counts as k gaps of g/k, and all gaps add up to the time from the first arrival to the last."""
    return [(later.at - earlier.at) / later.tokens for earlier, later in pairwise(arrivals) for _ in range(later.tokens)]


def longest_silence(arrivals: Sequence[Arrival]) -> float | None:
    """Between two arrivals, however many tokens each has: what a person sees as a halt."""
    return max((later.at - earlier.at for earlier, later in pairwise(arrivals)), default=None)


def weights(attempt: Attempt) -> list[float]:
    """Tokens of each arrival. Where chunks were counted and the server told the number of tokens, it is shared evenly."""
    counted = sum(arrival.tokens for arrival in attempt.arrivals)
    told = attempt.answer.output_tokens if attempt.answer is not None else counted
    return [arrival.tokens * told / counted for arrival in attempt.arrivals]


def throughput(attempts: Sequence[Attempt], width: float) -> list[float]:
    """Output tokens a second in each stretch of `width` seconds from the start of the load."""
    buckets: list[float] = []
    for attempt in attempts:
        for arrival, tokens in zip(attempt.arrivals, weights(attempt), strict=True):
            place = max(0, int(arrival.at / width))
            buckets += [0.0] * (place + 1 - len(buckets))
            buckets[place] += tokens / width
    return buckets


def sha256_of_all(digests: Sequence[str]) -> str:
    """Of many outputs in their order: of their digests in hex, a line each."""
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
