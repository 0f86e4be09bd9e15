"""The first pass as a whole: all units of a data set scanned, and its candidates in work order."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from draftmill.prompts.scan import ScanCounts, ScanRequest, scan_unit
from draftmill.prompts.spill import bucket_count, candidates, distinct_keys
from draftmill.prompts.workers import Workers
from draftmill.sources.locate import Located, units_of
from draftmill.spec.plan import PromptOrigin

Report = Callable[[int, int, ScanCounts], None]
"""Takes units done, units, and the counts so far."""
_REMOTE_BYTES = 4 << 30
"""What a source of unknown size is taken for."""


def known_size(located: list[Located]) -> int:
    """Bytes to read, as far as they are known."""
    return sum(_REMOTE_BYTES if source.size is None else source.size for source in located)


class SortedRows:
    """A scanned data set. `complete`: every usable row is among the candidates, not only those that come first."""

    def __init__(self, folder: Path, counts: ScanCounts, rows_by_source: list[int]) -> None:
        self._folder = folder
        self.rows_by_source = rows_by_source
        self.counts = counts
        self.complete = counts.threshold is None

    def candidates(self) -> Iterator[tuple[bytes, str, bytes]]:
        """(order key, id, payload) in work order, each id once, up to where none is missing."""
        threshold = self.counts.threshold
        for key, row_id, payload in candidates(self._folder):
            if threshold is not None and key > threshold:
                return
            yield key, row_id.hex(), payload

    def distinct(self) -> Iterator[Any]:
        """The order keys of all usable rows, sorted, each once, as arrays of uint64."""
        return distinct_keys(self._folder)


def scan_all(
    workers: Workers, origin: PromptOrigin, located: list[Located], seed: int, keep: int | None, below: Path, report: Report
) -> SortedRows:
    """Scan a data set into a new folder in `below`. `keep`: how many prompts will be looked at, from the top; None for all."""
    folder = Path(tempfile.mkdtemp(dir=below))
    request = ScanRequest(
        adapters=tuple(source.source.adapter or origin.adapter for source in located),
        columns=tuple(sorted(origin.columns.items())),
        turns=origin.turns,
        seed=seed,
        keep=keep,
        buckets=bucket_count(known_size(located)),
        folder=str(folder),
    )
    # In a worker, as it opens files with libraries that the parent has no other use for.
    parts = workers.run(functools.partial(units_of, index, source) for index, source in enumerate(located))
    units = [unit for part in parts for unit in part]
    counts = ScanCounts()
    by_source = [0] * len(located)
    results = workers.run(functools.partial(scan_unit, request, unit) for unit in units)
    for done, (unit, part) in enumerate(zip(units, results, strict=True), 1):
        counts.add(part)
        by_source[unit.source] += part.rows_read
        report(done, len(units), counts)
    return SortedRows(folder, counts, by_source)
