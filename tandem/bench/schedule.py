"""When the requests of an open loop are due."""

import random
from collections.abc import Iterator
from typing import Literal

Arrivals = Literal["deterministic", "poisson"]


def due_times(rate: float, arrivals: Arrivals, seed: int, burst: int = 1) -> Iterator[float]:
    """Seconds from the start of the load, without end, never falling. `rate` requests a second in the mean, `burst` of them at one
    moment: evenly spaced, or after the exponential pauses of a Poisson process. The first is due at 0."""
    chance = random.Random(f"tandem bench arrivals {seed}")
    mean = burst / rate
    at, number = 0.0, 0
    while True:
        for _ in range(burst):
            yield at
        number += 1
        # (Not summed up, so that evenly spaced times stay exact.)
        at = at + chance.expovariate(1 / mean) if arrivals == "poisson" else number * mean
