"""A simulated campaign as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from draftmill.errors import PermanentError
from draftmill.files import atomic_writer
from draftmill.simulator.campaign import Simulated
from draftmill.spec.plan import Plan

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 72


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """`values` as a line of bars from 0 to their maximum, averaged into at most `width` columns."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(column * len(values) / width) for column in range(width + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    top = max(*means, 1e-9)
    return "".join(_BARS[min(len(_BARS) - 1, int(mean / top * len(_BARS)))] for mean in means)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text; the first is aligned to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [header, ["-" * width for width in widths], *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def numbers(plan: Plan, run: Simulated) -> dict[str, Any]:
    """All totals of a run, for machines. Times are in hours of the simulated host, tokens are completion tokens."""
    datasets = {
        result.dataset: {
            "hours": [round(moment / 3600, 3) for moment in run.spans[result.dataset]],
            "responses": result.responses,
            "completion_tokens": result.completion_tokens,
            "prompt_tokens": result.prompt_tokens,
            "budget_tokens": result.budget_tokens,
            "budget_error_pct": round(100 * run.budget_error(plan.dataset(result.dataset)), 3),
            "outcome": result.outcome,
        }
        for result in run.results
    }
    return {
        "campaign": plan.campaign,
        "host": run.host.name,
        "hours": round(run.seconds / 3600, 3),
        "completion_tokens": run.completion_tokens,
        "tokens_per_s": round(run.completion_tokens / run.seconds, 1) if run.seconds else 0.0,
        "mean_running": round(run.counters.running_s / run.seconds, 1) if run.seconds else 0.0,
        "mean_kv_use": round(run.kv_use, 4),
        "peak_kv_use": round(run.counters.peak_kv / run.host.kv_tokens, 4),
        "retractions": run.counters.retracted,
        "datasets": datasets,
    }


def text(plan: Plan, run: Simulated) -> str:
    """The run for people: a table of data sets, the totals, and two lines of bars over time."""
    total = numbers(plan, run)
    rows = [
        [
            name,
            f"{entry['hours'][0]:.2f}",
            f"{entry['hours'][1]:.2f}",
            f"{entry['responses']:,}",
            f"{entry['completion_tokens']:,}",
            f"{entry['budget_error_pct']:+.2f} %",
            entry["outcome"],
        ]
        for name, entry in total["datasets"].items()
    ]
    header = ["data set", "from h", "to h", "responses", "tokens", "vs budget", "outcome"]
    first = (
        f"{plan.campaign} on {run.host.name}: {total['hours']:.2f} hours, {total['completion_tokens']:,} tokens, "
        f"{total['tokens_per_s']:,.0f} tokens/s"
    )
    second = (
        f"KV cache of {run.host.kv_tokens:,} tokens: {total['mean_kv_use']:.0%} in use on average, {total['peak_kv_use']:.0%} at most; "
        f"{total['mean_running']:.0f} requests running on average, {total['retractions']:,} retractions"
    )
    return "\n".join(
        [
            first,
            second,
            "",
            table(header, rows),
            "",
            f"tokens/s  {sparkline([sample.tokens_per_s for sample in run.samples])}",
            f"KV use    {sparkline([sample.used for sample in run.samples])}",
            f"(simulated in {run.took_s:.0f} s)",
        ]
    )


def plot(plan: Plan, run: Simulated, path: Path) -> None:
    """Draw throughput, KV use and running requests over time: a PNG or SVG by matplotlib, or an HTML page by plotly.

    The ending of `path` chooses. PermanentError where the library for it is not installed.
    """
    try:
        if path.suffix == ".html":
            _plot_html(plan, run, path)
        else:
            _plot_image(plan, run, path)
    except ImportError as error:
        raise PermanentError(f"{path}: a plot needs {error.name}, which is not installed; leave --plot out") from None


def _series(run: Simulated) -> list[tuple[str, list[float]]]:
    return [
        ("tokens/s", [sample.tokens_per_s for sample in run.samples]),
        ("KV use, %", [100 * sample.used / run.host.kv_tokens for sample in run.samples]),
        ("running", [float(sample.running) for sample in run.samples]),
    ]


def _plot_image(plan: Plan, run: Simulated, path: Path) -> None:
    from matplotlib.figure import Figure

    hours = [sample.at_s / 3600 for sample in run.samples]
    figure = Figure(figsize=(11, 9), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True, height_ratios=[2, 2, 2, 1 + 0.25 * len(run.spans)])
    for axis, (name, values) in zip(axes, _series(run), strict=False):
        axis.plot(hours, values, linewidth=0.8)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    spans = sorted(run.spans.items(), key=lambda entry: entry[1], reverse=True)
    for place, (name, (began, ended)) in enumerate(spans):
        axes[3].barh(place, (ended - began) / 3600, left=began / 3600, height=0.6)
        axes[3].text(began / 3600, place, f" {name}", va="center", fontsize=8)
    axes[3].set_yticks([])
    axes[3].set_xlabel("hours")
    figure.suptitle(f"{plan.campaign} on {run.host.name}: {run.seconds / 3600:.2f} hours")
    with atomic_writer(path) as stream:
        figure.savefig(stream, format=path.suffix.lstrip(".") or "png", dpi=110)


def _plot_html(plan: Plan, run: Simulated, path: Path) -> None:
    from plotly.subplots import make_subplots

    hours = [sample.at_s / 3600 for sample in run.samples]
    series = _series(run)
    figure = make_subplots(rows=len(series), cols=1, shared_xaxes=True, subplot_titles=[name for name, _ in series])
    for row, (name, values) in enumerate(series, 1):
        figure.add_scatter(x=hours, y=values, name=name, row=row, col=1)
    figure.update_layout(title=f"{plan.campaign} on {run.host.name}: {run.seconds / 3600:.2f} hours")
    with atomic_writer(path) as stream:
        stream.write(figure.to_html(include_plotlyjs=True).encode())


def write_numbers(plan: Plan, run: Simulated, path: Path) -> None:
    """Write `numbers` as JSON."""
    with atomic_writer(path) as stream:
        stream.write(orjson.dumps(numbers(plan, run), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
