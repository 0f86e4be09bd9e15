"""Numbers about a corpus, from the table of its rows. Lengths are in tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from draftmill.corpus.selection import FATES, HELD_OUT, TRAIN, Source

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}


def taken(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that are in the corpus, training and held-out, with their whole length as `tokens`."""
    rows = table[table["fate"] <= HELD_OUT]
    return rows.assign(tokens=rows["prompt_tokens"].astype("int64") + rows["completion_tokens"])


def totals(table: pd.DataFrame) -> dict[str, int]:
    """Rows and tokens of both splits, and the longest row."""
    rows = taken(table)
    train, held_out = rows[rows["fate"] == TRAIN], rows[rows["fate"] == HELD_OUT]
    return {
        "rows": len(train),
        "loss_tokens": int(train["completion_tokens"].sum()),
        "total_tokens": int(train["tokens"].sum()),
        "held_out_rows": len(held_out),
        "held_out_loss_tokens": int(held_out["completion_tokens"].sum()),
        "held_out_total_tokens": int(held_out["tokens"].sum()),
        "longest_row": int(rows["tokens"].max()),
    }


def by_dataset(table: pd.DataFrame, sources: list[Source]) -> dict[str, dict[str, Any]]:
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
            "total_tokens": int(mine["tokens"].sum()),
            "cut_answers": int(mine["truncated"].sum()),
            "prompt_length": lengths(mine["prompt_tokens"]),
            "answer_length": lengths(mine["completion_tokens"]),
        }
    return described


def lengths(column: pd.Series[int]) -> dict[str, float]:
    """Mean, quantiles and maximum; empty where there are no rows."""
    if column.empty:
        return {}
    quantiles = column.quantile(list(QUANTILES.values()))
    return {
        "mean": round(float(column.mean()), 1),
        **{name: round(float(quantiles[at]), 1) for name, at in QUANTILES.items()},
        "max": int(column.max()),
    }


def histogram(column: pd.Series[int], most: int, bins: int = 24) -> list[int]:
    """Numbers of rows in `bins` bins of equal width from 0 to `most`."""
    import numpy as np

    counts: list[int] = np.histogram(column, bins=bins, range=(0, max(1, most)))[0].tolist()
    return counts
