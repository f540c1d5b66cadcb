"""Scenarios as data: how long prompts and outputs are, in which mixture, and in which bursts they come."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lengths:
    """Whole numbers from `low` to `high`, each as likely as any other."""

    low: int
    high: int

    def draw(self, chance: random.Random) -> int:
        return chance.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind, in tokens. Of every block of requests of a scenario, `share` are of this kind."""

    name: str
    prompt: Lengths
    output: Lengths
    share: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """`burst`: how many requests arrive at one moment in an open loop."""

    kinds: tuple[Kind, ...]
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """One request of a scenario, in tokens."""

    kind: str
    prompt: int
    output: int


SHORT_PROMPT, LONG_PROMPT = Lengths(32, 96), Lengths(512, 1536)
SHORT_OUTPUT, LONG_OUTPUT = Lengths(16, 48), Lengths(128, 384)
SHORT_SHORT = Kind("short-short", SHORT_PROMPT, SHORT_OUTPUT)
LONG_LONG = Kind("long-long", LONG_PROMPT, LONG_OUTPUT)

DEFAULT_SCENARIO = "short-short"
SCENARIOS: dict[str, Scenario] = {
    "short-short": Scenario((SHORT_SHORT,)),
    "short-long": Scenario((Kind("short-long", SHORT_PROMPT, LONG_OUTPUT),)),
    "long-short": Scenario((Kind("long-short", LONG_PROMPT, SHORT_OUTPUT),)),
    "long-long": Scenario((LONG_LONG,)),
    "mixed": Scenario((Kind("short-short", SHORT_PROMPT, SHORT_OUTPUT, share=3), LONG_LONG)),
    "burst": Scenario((SHORT_SHORT,), burst=8),
}


def shapes(scenario: Scenario, seed: int) -> Iterator[Shape]:
    """Without end. The same seed gives the same shapes in the same order; each block has its kinds in their shares, shuffled."""
    chance = random.Random(f"tandem bench shapes {seed}")
    block = [kind for kind in scenario.kinds for _ in range(kind.share)]
    for _ in itertools.count():
        chance.shuffle(block)
        for kind in block:
            yield Shape(kind.name, kind.prompt.draw(chance), kind.output.draw(chance))
