"""The account of one pass over a journal: every response is kept or dropped for a reason, and too many drops end the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from draftmill.corpus.record import Row
from draftmill.errors import PermanentError
from draftmill.generation.response import Response
from draftmill.spec.policy import QualityPolicy

NAMED_IDS = 20
"""Ids of dropped rows kept per reason, for people to look at."""


@dataclass
class Tally:
    """Counts of one pass over a journal."""

    rows_in: int = 0
    tokens_in: int = 0
    rows_kept: int = 0
    loss_tokens: int = 0
    total_tokens: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=dict)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    servers: Counter[str] = field(default_factory=Counter)
    samplings: Counter[bytes] = field(default_factory=Counter)

    def read(self, response: Response) -> None:
        """Count a response, whatever becomes of it."""
        self.rows_in += 1
        self.tokens_in += response.completion_tokens

    def drop(self, response: Response, reason: str) -> None:
        """Count a row that does not become a record."""
        self.dropped[reason] += 1
        names = self.named.setdefault(reason, [])
        if len(names) < NAMED_IDS:
            names.append(response.id)

    def keep(self, response: Response, row: Row) -> None:
        """Count a row that does."""
        self.rows_kept += 1
        self.loss_tokens += row.head.completion_tokens
        self.total_tokens += row.head.tokens
        self.finish_reasons[row.head.finish_reason] += 1
        self.servers[response.server] += 1
        # The limit on new tokens shrinks with the room a prompt leaves, so it is no property of the campaign's sampling.
        sampling = {name: value for name, value in response.sampling.items() if name != "max_new_tokens"}
        self.samplings[orjson.dumps(sampling, option=orjson.OPT_SORT_KEYS)] += 1

    def samplings_by_rows(self) -> list[dict[str, Any]]:
        """The sampling parameters that occurred, with the number of kept rows, most frequent first."""
        return [{"sampling": orjson.loads(text), "rows": rows} for text, rows in self.samplings.most_common()]


def shares(counts: Mapping[str, int], rows: int) -> str:
    """Counts for people, the largest first: `truncated 7 (35.0%), empty 1 (5.0%)`."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count} ({count / rows:.1%})" for name, count in ranked)


def tally_warnings(dataset: str, tally: Tally, flagged: Mapping[str, int], policy: QualityPolicy) -> list[str]:
    """What a person should be told about the losses of a data set, one sentence each.

    Raises PermanentError where there was nothing to keep, or where more was dropped than `fail_dropped_fraction` allows.
    """
    rows, dropped = tally.rows_in, tally.dropped.total()
    if not rows:
        raise PermanentError(f"{dataset}: the journal has no response; generate it first")
    if not tally.rows_kept:
        raise PermanentError(
            f"{dataset}: all {rows} responses were dropped: {shares(tally.dropped, rows)}; see the campaign's quality policies"
        )
    if dropped / rows > policy.fail_dropped_fraction:
        raise PermanentError(
            f"{dataset}: {dropped} of {rows} responses were dropped, more than the {policy.fail_dropped_fraction:.0%} that "
            f"quality.fail_dropped_fraction allows: {shares(tally.dropped, rows)}"
        )
    warnings = []
    if dropped / rows > policy.warn_dropped_fraction:
        warnings.append(f"{dropped} of {rows} responses were dropped: {shares(tally.dropped, rows)}")
    often = {name: count for name, count in flagged.items() if count / rows > policy.warn_dropped_fraction}
    if often:
        warnings.append(f"of {rows} responses, doubtful ones are frequent: {shares(often, rows)}")
    return warnings
