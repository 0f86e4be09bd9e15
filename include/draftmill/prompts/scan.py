"""The first pass over a source: which rows can be used, and where each stands in the work order. No tokenizer yet."""

from __future__ import annotations

import functools
import hashlib
import os
from binascii import hexlify
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.prompts.canonical import encode_question, encode_selection
from draftmill.prompts.select import selector
from draftmill.prompts.spill import Spill
from draftmill.sources.adapters import make_adapter
from draftmill.sources.chat import SkipRow
from draftmill.sources.readers.json_lines import DAMAGED
from draftmill.sources.units import Unit, columns_of, read_unit
from draftmill.spec.dataset import Turns

_BLAKE2B = hashlib.blake2b


@dataclass(frozen=True)
class ScanRequest:
    """What to do with the rows of a data set. Every process makes the same of the same request."""

    adapters: tuple[str, ...]
    """Adapter of each source, by the source's number."""
    columns: tuple[tuple[str, str], ...]
    turns: Turns
    seed: int
    keep: int | None
    buckets: int
    folder: str


@dataclass
class ScanCounts:
    """What a unit held. `threshold`: keys above it are not all among the candidates."""

    rows_read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    threshold: bytes | None = None

    @property
    def usable(self) -> int:
        """Rows that were not skipped."""
        return self.rows_read - sum(self.skipped.values())

    def add(self, other: ScanCounts) -> None:
        """Take the counts of another unit in."""
        self.rows_read += other.rows_read
        self.skipped.update(other.skipped)
        self.repaired.update(other.repaired)
        if other.threshold is not None:
            self.threshold = other.threshold if self.threshold is None else min(self.threshold, other.threshold)


def scan_unit(request: ScanRequest, unit: Unit) -> ScanCounts:
    """Read a unit and spill what is usable. Raises PermanentError where none of its rows has a column of the schema."""
    return _scanner(request).scan(unit)


@functools.lru_cache(maxsize=1)
def _scanner(request: ScanRequest) -> _Scanner:
    """One scanner a process and request, so that its threshold carries over from unit to unit."""
    return _Scanner(request)


class _Scanner:
    def __init__(self, request: ScanRequest) -> None:
        self._adapters = [make_adapter(name, dict(request.columns)) for name in request.adapters]
        self._select = [selector(request.turns, adapter) for adapter in self._adapters]
        self._seed = str(request.seed).encode()
        self._spill = Spill(Path(request.folder), str(os.getpid()), request.buckets, request.keep)
        self._add = self._spill.add

    def scan(self, unit: Unit) -> ScanCounts:
        adapter = self._adapters[unit.source]
        columns = columns_of(unit)
        if columns is not None:
            adapter.check_columns(columns, unit.label)
        counts = ScanCounts()
        strangers: set[str] = set()
        for row in read_unit(unit, adapter.columns):
            counts.rows_read += 1
            try:
                self._take(row, unit.source, counts.repaired)
            except SkipRow as skip:
                counts.skipped[skip.reason] += 1
                if skip.reason == "unknown_columns" and not strangers:
                    strangers.update(map(str, row))
            except RecursionError:
                counts.skipped["nested_too_deeply"] += 1
        if strangers and counts.skipped["unknown_columns"] == counts.rows_read - counts.skipped["damaged_line"]:
            adapter.check_columns(list(strangers), unit.label)
        self._spill.flush()
        counts.threshold = self._spill.threshold
        return counts

    def _take(self, row: Any, source: int, repaired: Counter[str]) -> None:
        if type(row) is not dict:
            raise SkipRow("damaged_line" if row is DAMAGED else "not_an_object")
        adapter = self._adapters[source]
        question = adapter.question(row)
        payload = basis = encode_question(question) if question else None
        if payload is None or basis is None:
            conversation = adapter.conversation(row)
            selection = self._select[source](conversation.messages)
            payload, basis, repairs = encode_selection(selection, conversation.tools, conversation.identity)
            repaired.update(repairs)
        row_id = _BLAKE2B(basis, digest_size=16).digest()
        # The same as prompt.content_id and prompt.order_key, without going through text.
        self._add(_BLAKE2B(hexlify(row_id), digest_size=8, key=self._seed).digest(), row_id, payload)
