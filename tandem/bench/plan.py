"""From flags to what is to be done: which loads, of which requests."""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.bench.load import Bounds, ClosedLoop, Load, OpenLoop
from tandem.bench.requests import WARM_UP, Line, Request, Sampling, from_lines, from_scenario, read_lines, text, token_ids
from tandem.bench.scenarios import SCENARIOS
from tandem.bench.schedule import due_times
from tandem.bench.settings import DEFAULT_CONCURRENCY, DEFAULT_REQUESTS, BenchSettings
from tandem.bench.targets import Server


@dataclass(frozen=True)
class Plan:
    """`lines` are those of a file of requests, None for a scenario."""

    settings: BenchSettings
    loads: tuple[Load, ...]
    bounds: Bounds
    sampling: Sampling
    lines: list[Line] | None

    def requests(self, place: int | None) -> Iterator[Request]:
        """Without end, for the load at this place of the plan. The first load of every run has the same, however hard it is; a
        scenario's are others for each further load, and for warming up (None), so that no prompt is found in a server's cache."""
        nested = self.settings.target == "worker"
        if self.lines is not None:
            return from_lines(self.lines, self.sampling, nested=nested)
        content = token_ids(self.settings.vocab_size) if nested else text
        name = WARM_UP if place is None else str(place)
        return from_scenario(SCENARIOS[self.settings.scenario], content, self.sampling, name, nested=nested)

    def due(self, load: OpenLoop) -> Iterator[float]:
        burst = SCENARIOS[self.settings.scenario].burst if self.lines is None else 1
        return due_times(load.rate, load.arrivals, self.settings.seed, burst)


def lines_of(settings: BenchSettings) -> list[Line] | None:
    """Raises `BenchError` for a file that cannot be used."""
    if settings.requests_file is None:
        return None
    return read_lines(settings.requests_file, for_worker=settings.target == "worker")


def plan_of(settings: BenchSettings, server: Server, lines: list[Line] | None) -> Plan:
    loads: tuple[Load, ...]
    if settings.arrival_rate is not None:
        loads = tuple(OpenLoop(rate, settings.arrivals, settings.max_in_flight) for rate in settings.arrival_rate)
    else:
        loads = tuple(ClosedLoop(concurrency) for concurrency in settings.concurrency or [DEFAULT_CONCURRENCY])
    count = settings.requests
    if count is None and settings.duration is None:
        count = DEFAULT_REQUESTS if lines is None else len(lines)
    # A person's own requests end where they end; a scenario's are as long as it says, where the server can be told so.
    ignore_eos = settings.ignore_eos if settings.ignore_eos is not None else lines is None and server.ignores_eos
    sampling = Sampling(settings.seed, settings.temperature, ignore_eos, settings.max_tokens)
    return Plan(settings, loads, Bounds(count, settings.duration), sampling, lines)
