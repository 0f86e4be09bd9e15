"""A report on the prompts of one data set: what became of its rows, how long prompts are, and some of them as they are sent."""

from __future__ import annotations

import html
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_BAR = 40
_COLUMN, _HEIGHT, _GAP = 46, 180, 6
_STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto}td{padding:2px 12px}.n{text-align:right}"
    "pre{background:#f4f4f4;padding:8px;white-space:pre-wrap}"
)
_WHAT = {
    "broken_json": "text that should be JSON and is not",
    "broken_tools": "function definitions that cannot be read",
    "damaged_line": "lines or values that are no JSON",
    "duplicate": "rows that ask what another row of the data set asks",
    "empty_conversation": "no messages",
    "empty_prompt": "a first user turn without text",
    "in_earlier_dataset": "prompts that an earlier data set of the plan has",
    "malformed_turn": "a message that is no object, or has no role",
    "nested_too_deeply": "values nested deeper than any reader goes",
    "no_user_turn": "no message by a user",
    "not_an_object": "rows that are no objects",
    "not_text": "content that is no text",
    "outside_vocabulary": "ids that the model does not have",
    "over_context": "no room for an answer in the model's context",
    "over_max_prompt_tokens": "longer than max_prompt_tokens",
    "over_max_prompts": "not needed: max_prompts was reached",
    "private_use_characters": "control tokens spelled out beside private-use characters",
    "special_token_text": "control tokens spelled out (policy skip)",
    "template_refused": "conversations that the chat template refuses",
    "unknown_columns": "rows without a known column",
    "unknown_role": "roles that nobody knows",
}
"""What each reason means, for people."""


@dataclass(frozen=True)
class Sample:
    """One prompt as text, with its length in tokens."""

    id: str
    tokens: int
    text: str


@dataclass(frozen=True)
class Report:
    """The figures. bins: (from, to, prompts) with lengths in tokens, `to` excluded."""

    meta: dict[str, Any]
    total_tokens: int
    longest: int
    median: int
    p95: int
    bins: list[tuple[int, int, int]]
    samples: list[Sample]


def prompt_lengths(path: Path) -> array[int]:
    """Lengths in tokens of all prompts of a file: four bytes a prompt."""
    with path.open("rb") as stream:
        return array("I", (len(orjson.loads(line)["input_ids"]) for line in stream))


def make_report(meta: dict[str, Any], lengths: array[int], samples: list[Sample]) -> Report:
    """Put the figures together. `lengths` holds at least one prompt."""
    import numpy as np

    ordered = array("I", np.sort(np.frombuffer(lengths, np.uint32)).tobytes())
    return Report(
        meta=meta,
        total_tokens=sum(ordered),
        longest=ordered[-1],
        median=ordered[len(ordered) // 2],
        p95=ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        bins=list(_bins(ordered)),
        samples=samples,
    )


def _bins(ordered: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Bins that double in width: lengths of prompts spread over orders of magnitude."""
    start = 1
    while start * 2 <= ordered[0]:
        start *= 2
    place = 0
    while place < len(ordered):
        end = place
        while end < len(ordered) and ordered[end] < start * 2:
            end += 1
        yield start, start * 2, end - place
        place, start = end, start * 2


def _rows(report: Report) -> list[tuple[str, str, str]]:
    """(name, number, explanation) of every count."""
    meta = report.meta
    fixed = [
        ("rows read", meta["rows_read"], ", ".join(_source(source) for source in meta["sources"])),
        ("rows used", meta["rows_used"], "each is one prompt"),
    ]
    skipped = [(f"skipped: {reason}", count, _WHAT.get(reason, "")) for reason, count in meta["skipped"].items()]
    noted = [
        ("control tokens spelled out", meta.get("special_token_text", 0), "encoded as plain text, or skipped by policy"),
        *((f"repaired: {what}", count, "characters that no JSON holds") for what, count in meta.get("repaired", {}).items()),
        ("kept as answered", meta.get("answered_only", 0), "no longer chosen, but a response needs them"),
    ]
    return [(name, f"{count:,}", why) for name, count, why in [*fixed, *skipped, *(row for row in noted if row[1])]]


def _source(source: dict[str, Any]) -> str:
    name = source.get("hub") or source.get("path")
    commit = f" at {source['commit'][:12]}" if source.get("commit") else ""
    return f"{name}{commit}: {source['rows_read']:,}" if "rows_read" in source else f"{name}{commit}"


def _lengths_line(report: Report) -> str:
    return (
        f"{report.meta['prompts']:,} prompts, {report.total_tokens:,} tokens; "
        f"median {report.median:,}, 95 % below {report.p95:,}, longest {report.longest:,}"
    )


def as_text(report: Report) -> str:
    """The report for a terminal."""
    lines = [report.meta["dataset"], ""]
    lines += [f"  {name:<34} {number:>12}  {why}".rstrip() for name, number, why in _rows(report)]
    lines += ["", f"  {_lengths_line(report)}", ""]
    most = max(count for _, _, count in report.bins)
    for start, end, count in report.bins:
        lines.append(f"  {start:>7,} to {end - 1:>7,} tokens {count:>9,}  {'#' * round(_BAR * count / most)}".rstrip())
    for number, sample in enumerate(report.samples, 1):
        lines += ["", f"  -- sample {number}: {sample.id}, {sample.tokens:,} tokens", sample.text]
    return "\n".join(lines) + "\n"


def as_html(report: Report) -> str:
    """The report as one page that needs nothing else; every text of the data set is escaped."""
    escape = html.escape
    counts = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{number}</td><td>{escape(why)}</td></tr>" for name, number, why in _rows(report)
    )
    samples = "".join(
        f"<h3>{number}. {escape(sample.id)}, {sample.tokens:,} tokens</h3><pre>{escape(sample.text)}</pre>"
        for number, sample in enumerate(report.samples, 1)
    )
    name = escape(report.meta["dataset"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Prompts of {name}</title><style>{_STYLE}</style>'
        f"<h1>Prompts of {name}</h1><table>{counts}</table><h2>Lengths</h2><p>{escape(_lengths_line(report))}</p>{_chart(report)}"
        f"<h2>Samples</h2>{samples}</html>\n"
    )


def _chart(report: Report) -> str:
    """The histogram as SVG, one column a bin."""
    most = max(count for _, _, count in report.bins)
    parts = []
    for index, (start, end, count) in enumerate(report.bins):
        left, height = index * _COLUMN, round(_HEIGHT * count / most)
        top = 20 + _HEIGHT - height
        parts.append(
            f'<rect x="{left}" y="{top}" width="{_COLUMN - _GAP}" height="{height}" fill="#47a">'
            f"<title>{start} to {end - 1}: {count}</title></rect>"
            f'<text x="{left}" y="{top - 4}" font-size="11">{count}</text>'
            f'<text x="{left}" y="{_HEIGHT + 36}" font-size="11">{start}</text>'
        )
    size = f'width="{len(report.bins) * _COLUMN}" height="{_HEIGHT + 44}"'
    drawn = f'<svg {size} role="img" aria-label="Prompts by length in tokens">{"".join(parts)}</svg>'
    return f"{drawn}<p>Prompts by length in tokens; each column covers twice the width of the one before.</p>"


def write_png(report: Report, path: Path) -> bool:
    """The histogram as an image, where matplotlib is installed; returns whether it is."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.bar([str(start) for start, _, _ in report.bins], [count for _, _, count in report.bins])
    axes.set(xlabel="prompt tokens, from", ylabel="prompts", title=f"{report.meta['dataset']}: {_lengths_line(report)}")
    figure.savefig(path)
    return True
