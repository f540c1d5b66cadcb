"""The table of a run, for a person."""

from rich.console import Console
from rich.table import Table

from tandem.bench.saturation import Dispatch, Saturation
from tandem.bench.summary import Point, Run, Spread

COLUMNS = ("mean", "p50", "p90", "p99", "max")
TITLES = {
    "ttft": "first token",
    "tpot": "per output token",
    "inter_token": "between tokens",
    "inter_chunk": "between chunks",
    "longest_silence": "longest silence",
    "latency": "whole answer",
    "render": "render call",
    "derender_call": "derender call",
    "queue": "queue",
    "execution": "execution",
    "total": "total",
}


def show(console: Console, run: Run) -> None:
    served = ", ".join(f"{name} {value}" for name, value in run.server.items() if value)
    console.print(f"\n{run.configuration['target']}: {served}", soft_wrap=True)
    if run.interrupted:
        console.print("interrupted: what had been measured until then", style="yellow")
    for one in run.points:
        _show_point(console, one)


def _show_point(console: Console, point: Point) -> None:
    console.print(f"\n{load_words(point)}", style="bold")
    for line in [requests_words(point), tokens_words(point), rates_words(point)]:
        if line:
            console.print(f"  {line}", soft_wrap=True)
    for example in point.examples:
        console.print(f"  {example.kind} ({example.count}): {example.message}", style="red", soft_wrap=True)
    if point.client:
        table = Table("milliseconds", *COLUMNS, "count", box=None, pad_edge=False, padding=(0, 1))
        table.columns[0].no_wrap = True
        for column in table.columns[1:]:
            column.justify = "right"
        for clock, metrics in (("client", point.client), ("server", point.server)):
            for name, values in metrics.items():
                table.add_row(f"  {clock}: {TITLES[name]}", *cells(values), str(values.count))
        console.print(table)
    if point.dispatch is not None:
        console.print(f"  {dispatch_words(point.dispatch)}", soft_wrap=True)
    saturated = point.saturation.client_saturated
    console.print(f"  {saturation_words(point.saturation)}", soft_wrap=True, style="bold yellow" if saturated else None)
    if point.output_sha256:
        console.print(f"  sha256 of all output {point.output_hashed}: {point.output_sha256}", soft_wrap=True)


def load_words(point: Point) -> str:
    load = point.load
    if load["loop"] == "closed":
        return f"{load['concurrency']} at once"
    return f"{load['arrival_rate']:g} a second, {load['arrivals']}, at most {load['max_in_flight']} in flight"


def requests_words(point: Point) -> str:
    counts = point.requests
    words = [f"{counts.completed} of {counts.sent} requests completed in {point.seconds:.2f} s"]
    words += [f"{count} {kind}" for kind, count in point.errors.items() if count]
    words += [f"{counts.unfinished} unfinished"] if counts.unfinished else []
    ends = ", ".join(f"{reason} {count}" for reason, count in point.finish_reasons.items())
    return "; ".join(words) + (f"; ended by {ends}" if ends else "")


def tokens_words(point: Point) -> str:
    tokens = point.tokens
    prompt = "unknown" if tokens.prompt is None else f"{tokens.prompt} ({_sources(tokens.prompt_source)})"
    return f"tokens: prompt {prompt}, output {tokens.output} ({_sources(tokens.output_source)})" if point.requests.completed else ""


def rates_words(point: Point) -> str:
    rates = point.rates
    return "" if rates is None else f"{rates.requests:.2f} requests/s, {rates.output_tokens:.1f} output tokens/s"


def dispatch_words(dispatch: Dispatch) -> str:
    rates = [f"{name} {value:.4g}/s" for name, value in (("offered", dispatch.offered), ("achieved", dispatch.achieved)) if value]
    lag = f"dispatch lag {dispatch.lag_p50:.1f} ms (p50), {dispatch.lag_p99:.1f} (p99), {dispatch.lag_max:.1f} (max)"
    held = f"; {dispatch.held} waited for a place, at most {dispatch.held_max:.0f} ms" if dispatch.held else ""
    return ", ".join([*rates, lag]) + held


def saturation_words(saturation: Saturation) -> str:
    if saturation.client_saturated:
        return f"client_saturated: yes, {'; '.join(saturation.why)}. These times tell of the bench, not of the server"
    return "client_saturated: no"


def cells(values: Spread) -> list[str]:
    return [number(getattr(values, name)) for name in COLUMNS]


def number(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _sources(sources: dict[str, int]) -> str:
    return (
        "none told"
        if not sources
        else ", ".join(sources)
        if len(sources) == 1
        else ", ".join(f"{name} of {count}" for name, count in sources.items())
    )
