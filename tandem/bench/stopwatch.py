"""One monotonic clock for a load: seconds from its start."""

import time
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    _start: float = field(default_factory=time.perf_counter)

    def restart(self) -> None:
        self._start = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._start
