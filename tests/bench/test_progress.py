"""What the live bar says."""

from tandem.bench.load import Watched
from tandem.bench.progress import state
from tests.bench.kit import answered


def test_rates_are_those_since_the_load_began() -> None:
    watched = Watched(running=3, tokens=50, finished=[answered((1, 1)), answered((1, 1))])
    assert state(watched, 4.0) == "2 done, 3 running, 0.5 requests/s, 12 tokens/s"
    watched.failed = 1
    assert state(watched, 4.0).endswith(", 1 failed")
