"""Plots of a run as PNG, where matplotlib is installed."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench import measure
from tandem.bench.seen import Attempt
from tandem.bench.summary import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CDF, THROUGHPUT, TTFT = "latency_cdf.png", "throughput.png", "ttft_vs_load.png"
MISSING = "no plots: matplotlib is not installed; `pip install 'tandem-serving[bench]'` brings it"
_STRETCHES = 30
"""Points of a line over time: enough to see a change, few enough that each holds some output."""

Attempts = Mapping[str, Sequence[Attempt]]


def write(folder: Path, run: Run, attempts: Attempts) -> list[str]:
    """Those that there is something to show for. Returns what a person is to know of the others."""
    if find_spec("matplotlib") is None:
        return [MISSING]
    answered = {name: [one for one in some if one.answer is not None] for name, some in attempts.items()}
    answered = {name: some for name, some in answered.items() if some}
    if not answered:
        return ["no plots: no request was answered"]
    title = f"{run.configuration['target']}, {run.server.get('model') or 'model unknown'}"
    _save(folder / CDF, 2, lambda axes: _cdfs(axes, run, answered), title)
    _save(folder / THROUGHPUT, 1, lambda axes: _over_time(axes[0], run, attempts), title)
    if len(answered) == 1:
        return [f"no {TTFT}: that takes several loads, as in --concurrency 1,2,4 or --arrival-rate 1,2,4"]
    _save(folder / TTFT, 1, lambda axes: _against_load(axes[0], run), title)
    return []


def _save(path: Path, panels: int, draw: Callable[[Sequence["Axes"]], None], title: str) -> None:
    # Without pyplot: no window system is looked for, and nothing is left open.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(5.5 * panels if panels > 1 else 8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for each in axes:
        each.grid(alpha=0.3)
        each.spines[["top", "right"]].set_visible(False)
    draw(axes)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=140)


def label(run: Run, name: str) -> str:
    """A load in a legend."""
    load = next(point.load for point in run.points if point.name == name)
    return f"{load['concurrency']} at once" if load["loop"] == "closed" else f"{load['arrival_rate']:g} a second"


def _cdfs(axes: Sequence["Axes"], run: Run, attempts: Attempts) -> None:
    metrics = (("time to first token", measure.ttft), ("whole answer", measure.latency))
    for panel, (words, metric) in zip(axes, metrics, strict=True):
        for name, some in attempts.items():
            values = sorted(value * 1000 for value in map(metric, some) if value is not None)
            if values:
                shares = [(place + 1) / len(values) for place in range(len(values))]
                panel.step([values[0], *values], [0.0, *shares], where="post", label=label(run, name))
        panel.set(xlabel=f"{words}, ms (client)", ylabel="share of requests", ylim=(0, 1.02), xlim=(0, None))
        if panel.lines:
            panel.legend(title="load", frameon=False, loc="lower right")


def _over_time(axes: "Axes", run: Run, attempts: Attempts) -> None:
    for name, some in attempts.items():
        end = max((one.ended for one in some), default=0.0)
        if end <= 0:
            continue
        # A little wider, so that what came at the very end has no stretch of its own.
        width = 1.000001 * end / min(_STRETCHES, max(1, sum(len(one.arrivals) for one in some) // 20))
        rates = measure.throughput(some, width)
        axes.plot([(place + 0.5) * width for place in range(len(rates))], rates, label=label(run, name), linewidth=1.5)
    axes.set(xlabel="seconds from the start of the load", ylabel="output tokens a second", ylim=(0, None), xlim=(0, None))
    axes.legend(title="load", frameon=False)


def _against_load(axes: "Axes", run: Run) -> None:
    points = [point for point in run.points if "ttft" in point.client]
    loads = [point.load.get("concurrency") or point.load["arrival_rate"] for point in points]
    for name, style in (("p50", "o-"), ("p99", "s--")):
        axes.plot(loads, [getattr(point.client["ttft"], name) for point in points], style, label=name)
    closed = points[0].load["loop"] == "closed"
    axes.set(xlabel="requests at once" if closed else "requests offered a second", ylabel="time to first token, ms (client)")
    axes.set(ylim=(0, None), xlim=(0, None))
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.legend(frameon=False)
