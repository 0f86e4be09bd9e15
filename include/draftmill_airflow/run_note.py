"""A run's totals as its note, which the list of runs shows."""

from __future__ import annotations

from typing import Any

MARK = "draftmill: "
"""What a note of ours begins with, and a headline of `reporting` too."""

MOST_CHARACTERS = 1000
"""The most that Airflow keeps of a note."""


def note_of(report: dict[str, Any] | None) -> str | None:
    """The note for what `report` returned: its headline and one line per data set. None where there is none."""
    if not report or not report.get("headline"):
        return None
    lines = [f"- {row['data set']}: {row['tokens']:,} of {row['budget']:,} tokens, {row['outcome']}" for row in report.get("totals", [])]
    return "\n".join([str(report["headline"]), "", *lines])[:MOST_CHARACTERS]
