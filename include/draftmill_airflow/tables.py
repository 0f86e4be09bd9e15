"""Tables in task logs."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def show(table: pd.DataFrame) -> str:
    """`table` for a log: whole numbers in groups of three, no index, never wrapped."""
    return table.to_string(index=False, formatters=dict.fromkeys(table.columns, _cell))


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, numbers.Integral) else str(value)
