"""The first pass as a whole: all units of a data set scanned, and their candidates in work order."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftmill.prompts.rendering import Candidate
from draftmill.prompts.scan import ScanCounts, ScanRequest, scan_unit
from draftmill.prompts.spill import candidates, distinct_keys
from draftmill.prompts.workers import Workers
from draftmill.sources.units import Unit


class Sorted:
    """A scanned data set. `complete`: every usable row is among the candidates, not only those that come first."""

    def __init__(self, folder: Path, buckets: int, counts: ScanCounts) -> None:
        self._folder, self._buckets = folder, buckets
        self.counts = counts
        self.complete = counts.threshold is None

    def candidates(self) -> Iterator[Candidate]:
        """(id, payload) in work order, each id once, up to where none is missing."""
        threshold = self.counts.threshold
        for key, row_id, payload in candidates(self._folder, self._buckets):
            if threshold is not None and key > threshold:
                return
            yield row_id.hex(), payload

    def distinct(self) -> Iterator[tuple[Any, Any]]:
        """The order keys of all usable rows, sorted, in pieces: arrays of keys (uint64) and of rows with each key."""
        return distinct_keys(self._folder, self._buckets)


def scan_all(workers: Workers, units: list[Unit], request: ScanRequest, report: Callable[[int, int, ScanCounts], None]) -> Sorted:
    """Scan all units into a new folder below `request.folder`. `report` gets units done, units, and the counts so far."""
    folder = Path(tempfile.mkdtemp(dir=request.folder))
    request = replace(request, folder=str(folder))
    counts = ScanCounts()
    for done, part in enumerate(workers.run(functools.partial(scan_unit, request, unit) for unit in units), 1):
        counts.add(part)
        report(done, len(units), counts)
    return Sorted(folder, request.buckets, counts)
