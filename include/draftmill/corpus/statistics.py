"""Numbers about a corpus, from the table of its rows. Lengths are in tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from draftmill.corpus.selection import FATES, HELD_OUT, TRAIN, Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from draftmill.corpus.selection import Table

    Numbers = NDArray[np.integer[Any]]

QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}


def taken(table: Table) -> Table:
    """The rows that are in the corpus, training and held-out."""
    return table[table["fate"] <= HELD_OUT]


def tokens(rows: Table) -> Numbers:
    """Their whole lengths, prompt and answer."""
    lengths: Numbers = rows["prompt_tokens"].astype("int64") + rows["completion_tokens"]
    return lengths


def totals(table: Table) -> dict[str, int]:
    """Rows and tokens of both splits, and the longest row."""
    rows = taken(table)
    train, held_out = rows[rows["fate"] == TRAIN], rows[rows["fate"] == HELD_OUT]
    return {
        "rows": len(train),
        "loss_tokens": int(train["completion_tokens"].sum()),
        "total_tokens": int(tokens(train).sum()),
        "held_out_rows": len(held_out),
        "held_out_loss_tokens": int(held_out["completion_tokens"].sum()),
        "held_out_total_tokens": int(tokens(held_out).sum()),
        "longest_row": int(tokens(rows).max()),
    }


def by_dataset(table: Table, sources: list[Source]) -> dict[str, dict[str, Any]]:
    """For each data set: records by fate, tokens taken, answers cut by the token limit, and lengths."""
    rows = taken(table)
    described = {}
    for number, source in enumerate(sources):
        records, mine = table[table["source"] == number], rows[rows["source"] == number]
        fates = Counter(FATES[fate] for fate in records["fate"].tolist())
        described[source.name] = {
            "records": len(records),
            **{fate: fates.get(fate, 0) for fate in FATES},
            "loss_tokens": int(mine["completion_tokens"].sum()),
            "total_tokens": int(tokens(mine).sum()),
            "cut_answers": int(mine["truncated"].sum()),
            "prompt_length": lengths(mine["prompt_tokens"]),
            "answer_length": lengths(mine["completion_tokens"]),
        }
    return described


def lengths(column: Numbers) -> dict[str, float]:
    """Mean, quantiles and maximum; empty where there are no rows."""
    import numpy as np

    if not len(column):
        return {}
    return {
        "mean": round(float(column.mean()), 1),
        **{name: round(float(np.quantile(column, at)), 1) for name, at in QUANTILES.items()},
        "max": int(column.max()),
    }


def histogram(column: Numbers, most: int, bins: int = 24) -> list[int]:
    """Numbers of rows in `bins` bins of equal width from 0 to `most`."""
    import numpy as np

    counts: list[int] = np.histogram(column, bins=bins, range=(0, max(1, most)))[0].tolist()
    return counts
