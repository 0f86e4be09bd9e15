"""Histograms for the card: PNG where matplotlib is installed, block characters everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.corpus.selection import Source
from draftmill.corpus.statistics import histogram

if TYPE_CHECKING:
    import pandas as pd

_BLOCKS = " ▁▂▃▄▅▆▇█"
_CHARTS = {"completion_tokens": ("answer_lengths.png", "answer"), "prompt_tokens": ("prompt_lengths.png", "prompt")}


def sparkline(counts: list[int]) -> str:
    """Counts as a line of block characters; anything above zero is visible."""
    most = max(counts, default=0)
    if not most:
        return " " * len(counts)
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)


def draw(folder: Path, rows: pd.DataFrame, sources: list[Source]) -> list[str]:
    """Write the PNG files into `folder` and return their names; none where matplotlib is absent."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    for column, (name, what) in _CHARTS.items():
        # Figure and canvas by themselves: pyplot would keep state and look for a display.
        figure = Figure(figsize=(9, 1.1 + 1.0 * len(sources)), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(sources), 1, sharex=True, squeeze=False)[:, 0]
        most = max(1, int(rows[column].max()))
        for number, (axis, source) in enumerate(zip(axes, sources, strict=True)):
            axis.hist(rows.loc[rows["source"] == number, column], bins=60, range=(0, most), color="#3b6ea5")
            axis.set_ylabel(source.name, rotation=0, ha="right", va="center", fontsize=8)
            axis.set_yticks([])
            axis.spines[["top", "right", "left"]].set_visible(False)
        axes[-1].set_xlabel(f"{what} length, tokens")
        figure.savefig(folder / name)
    return [name for name, _ in _CHARTS.values()]


def text_charts(rows: pd.DataFrame, sources: list[Source]) -> list[str]:
    """One line a data set: its name and the histogram of its answer lengths."""
    most = int(rows["completion_tokens"].max())
    width = max(len(source.name) for source in sources)
    lines = [f"{source.name:<{width}} |{sparkline(_answers(rows, number, most))}|" for number, source in enumerate(sources)]
    return [*lines, f"{'':<{width}}  0{most:>{23},} tokens"]


def _answers(rows: pd.DataFrame, number: int, most: int) -> list[int]:
    return histogram(rows.loc[rows["source"] == number, "completion_tokens"], most)
