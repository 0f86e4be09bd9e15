"""Histograms for the card: PNG where matplotlib is installed, block characters everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.corpus.selection import Source
from draftmill.corpus.statistics import histogram

if TYPE_CHECKING:
    import pandas as pd

_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLUMNS = {"completion_tokens": "answer length, tokens", "prompt_tokens": "prompt length, tokens"}
_FILE = "lengths.png"


def sparkline(counts: list[int]) -> str:
    """Counts as a line of block characters; anything above zero is visible."""
    most = max(counts, default=0)
    if not most:
        return " " * len(counts)
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)


def draw(folder: Path, rows: pd.DataFrame, sources: list[Source]) -> list[str]:
    """Write `lengths.png` into `folder`, a row of histograms for each data set; returns its name, or nothing without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    height = 1.0 + 0.8 * len(sources)
    # Figure and canvas by themselves: pyplot would keep state and look for a display.
    figure = Figure(figsize=(10, height), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sources), len(_COLUMNS), sharex="col", squeeze=False)
    figure.subplots_adjust(left=0.02 + 0.008 * max(len(source.name) for source in sources), right=0.98, bottom=0.6 / height, top=0.98)
    for (column, label), strip in zip(_COLUMNS.items(), axes.T, strict=True):
        most = max(1, int(rows[column].max()))
        for number, axis in enumerate(strip):
            axis.hist(rows.loc[rows["source"] == number, column], bins=60, range=(0, most), histtype="stepfilled", color="#3b6ea5")
            axis.set_yticks([])
            axis.spines[["top", "right", "left"]].set_visible(False)
        strip[-1].set_xlabel(label)
    for axis, source in zip(axes[:, 0], sources, strict=True):
        axis.set_ylabel(source.name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(folder / _FILE)
    return [_FILE]


def text_charts(rows: pd.DataFrame, sources: list[Source]) -> list[str]:
    """One line a data set: its name and the histogram of its answer lengths."""
    most = int(rows["completion_tokens"].max())
    width = max(len(source.name) for source in sources)
    lines = [f"{source.name:<{width}} |{sparkline(_answers(rows, number, most))}|" for number, source in enumerate(sources)]
    return [*lines, f"{'':<{width}}  0{most:>{23},} tokens"]


def _answers(rows: pd.DataFrame, number: int, most: int) -> list[int]:
    return histogram(rows.loc[rows["source"] == number, "completion_tokens"], most)
