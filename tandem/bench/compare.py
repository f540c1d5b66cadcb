"""Two runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tandem.bench.files import read_rows, read_run
from tandem.bench.report import TITLES, load_words
from tandem.bench.rows import Row
from tandem.bench.summary import Point, Run, Spread

TIERS = ("mean", "p50", "p99")


@dataclass(frozen=True, slots=True)
class Pair:
    """A number of both runs; None where a run has none."""

    name: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """From A to B, as a share of A."""
        return None if self.a is None or self.b is None or not self.a else self.b / self.a - 1


def compare(a: Path, b: Path, console: Console) -> None:
    """Raises `BenchError` for what is no run's folder."""
    runs, rows = (read_run(a), read_run(b)), (read_rows(a), read_rows(b))
    for letter, folder, run in zip("AB", (a, b), runs, strict=True):
        console.print(f"{letter}: {folder}{' (interrupted)' if run.interrupted else ''}", soft_wrap=True)
    for line in differences(*runs):
        console.print(f"   differs: {line}", soft_wrap=True, style="yellow")
    paired = pairs_of_points(*runs)
    if not paired:
        console.print("no load is in both", style="yellow")
    for one, other in paired:
        console.print(f"\n{load_words(one)}" + ("" if one.name == other.name else f"  /  {load_words(other)}"), style="bold")
        console.print(_table(numbers(one, other)))
        console.print(f"  {outputs(rows[0], rows[1], one.name, other.name)}", soft_wrap=True)


def differences(a: Run, b: Run) -> list[str]:
    """What was configured otherwise, and where. Loads are compared by themselves."""
    ours, theirs = {**a.configuration, **a.server}, {**b.configuration, **b.server}
    names = [name for name in {**ours, **theirs} if name not in ("concurrency", "arrival_rate")]
    return [f"{name}: {ours.get(name)} / {theirs.get(name)}" for name in names if ours.get(name) != theirs.get(name)]


def pairs_of_points(a: Run, b: Run) -> list[tuple[Point, Point]]:
    """Loads of the same name; where each run has only one, these, whatever they are."""
    if len(a.points) == len(b.points) == 1:
        return [(a.points[0], b.points[0])]
    theirs = {point.name: point for point in b.points}
    return [(point, theirs[point.name]) for point in a.points if point.name in theirs]


def numbers(a: Point, b: Point) -> list[Pair]:
    """Counts, rates and times (ms), each clock's by itself, in the order of the report."""
    pairs = [
        Pair("requests completed", a.requests.completed, b.requests.completed),
        Pair("requests failed", a.requests.failed, b.requests.failed),
        Pair("prompt tokens", a.tokens.prompt, b.tokens.prompt),
        Pair("output tokens", a.tokens.output, b.tokens.output),
        Pair("requests/s", *(point.rates.requests if point.rates else None for point in (a, b))),
        Pair("output tokens/s", *(point.rates.output_tokens if point.rates else None for point in (a, b))),
    ]
    for clock, ours, theirs in (("client", a.client, b.client), ("server", a.server, b.server)):
        for name in TITLES:
            if name in ours or name in theirs:
                pairs += [
                    Pair(f"{clock}: {TITLES[name]}, {tier}", _tier(ours.get(name), tier), _tier(theirs.get(name), tier))
                    for tier in TIERS
                ]
    return pairs


def outputs(a: Sequence[Row], b: Sequence[Row], load_a: str, load_b: str) -> str:
    """Whether the same requests got the same outputs, as far as both runs tell."""
    ours, theirs = _hashes(a, load_a), _hashes(b, load_b)
    both = ours.keys() & theirs.keys()
    if not both:
        return "outputs: none that can be compared (those of the same greedy requests can)"
    equal = sum(ours[key] == theirs[key] for key in both)
    hashed = " and ".join(sorted({hashed for _, _, hashed in both}))
    return f"outputs: {equal} of {len(both)} of the same requests are the same (sha256 of {hashed})"


def _hashes(rows: Sequence[Row], load: str) -> dict[tuple[int, str, str], str]:
    """By the request: its place, its body's hash, and what of its output was hashed."""
    known = [row for row in rows if row["load"] == load and row["output_sha256"]]
    return {(row["index"], row["request_sha256"], row["output_hashed"]): row["output_sha256"] for row in known}


def _tier(values: Spread | None, tier: str) -> float | None:
    return None if values is None else getattr(values, tier)


def _table(pairs: Sequence[Pair]) -> Table:
    table = Table("", "A", "B", "change", box=None, pad_edge=False, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    for pair in pairs:
        change = "" if pair.change is None else f"{pair.change:+.1%}"
        table.add_row(f"  {pair.name}", _number(pair.a), _number(pair.b), change)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
