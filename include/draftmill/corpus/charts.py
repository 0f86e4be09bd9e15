"""Histograms for the card: PNG where matplotlib is installed, block characters everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.corpus.selection import Source
from draftmill.corpus.statistics import histogram

if TYPE_CHECKING:
    from draftmill.corpus.selection import Table

_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLUMNS = {"completion_tokens": "answer length, tokens", "prompt_tokens": "prompt length, tokens"}
_FILE = "lengths.png"
_BINS = 60
_HEIGHT = 0.85
"""Of the tallest bar, where the next data set begins at 1."""


def sparkline(counts: list[int]) -> str:
    """Counts as a line of block characters; anything above zero is visible."""
    most = max(counts, default=0)
    if not most:
        return " " * len(counts)
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)


def draw(folder: Path, rows: Table, sources: list[Source]) -> list[str]:
    """Write `lengths.png` into `folder`, a row of histograms for each data set; returns its name, or nothing without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    # Figure and canvas by themselves: pyplot would keep state and look for a display.
    figure = Figure(figsize=(10, 1.0 + 0.8 * len(sources)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    # All data sets in one pair of axes, one above the other: a pair for each would take several times as long to draw.
    for axis, (column, label) in zip(figure.subplots(1, len(_COLUMNS), sharey=True), _COLUMNS.items(), strict=True):
        edges = np.linspace(0, max(1, int(rows[column].max())), _BINS + 1)
        for number in range(len(sources)):
            counts, _ = np.histogram(rows[column][rows["source"] == number], edges)
            tops = number + _HEIGHT * (1 - counts / max(1, counts.max()))  # the y axis points down, the first data set is above
            axis.stairs(tops, edges, baseline=number + _HEIGHT, fill=True, color="#3b6ea5")
        axis.set_xlabel(label)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
        axis.set_yticks(np.arange(len(sources)) + _HEIGHT / 2, [source.name for source in sources], fontsize=8)
        axis.set_ylim(len(sources), -0.1)
    figure.savefig(folder / _FILE)
    return [_FILE]


def text_charts(rows: Table, sources: list[Source]) -> list[str]:
    """One line a data set: its name and the histogram of its answer lengths."""
    most = int(rows["completion_tokens"].max())
    width = max(len(source.name) for source in sources)
    lines = [f"{source.name:<{width}} |{sparkline(_answers(rows, number, most))}|" for number, source in enumerate(sources)]
    return [*lines, f"{'':<{width}}  0{most:>{23},} tokens"]


def _answers(rows: Table, number: int, most: int) -> list[int]:
    return histogram(rows["completion_tokens"][rows["source"] == number], most)
