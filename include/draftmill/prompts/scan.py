"""The first pass over a source: which rows can be used, and where each stands in the work order. No tokenizer yet."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from binascii import hexlify
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.prompts.canonical import encode_questions, encode_selection
from draftmill.prompts.prompt import content_id, order_key
from draftmill.prompts.select import selector
from draftmill.prompts.spill import Spill
from draftmill.sources.adapters import make_adapter
from draftmill.sources.chat import SkipRow
from draftmill.sources.readers.json_lines import DAMAGED
from draftmill.sources.units import Unit, columns_of, read_unit
from draftmill.spec.dataset import Turns

_BLAKE2B = hashlib.blake2b
_CHUNK = 1024


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
        self._seed_number, self._seed = request.seed, str(request.seed).encode()
        self._spill = Spill(Path(request.folder), str(os.getpid()), request.buckets, request.keep)

    def scan(self, unit: Unit) -> ScanCounts:
        adapter = self._adapters[unit.source]
        columns = columns_of(unit)
        if columns is not None:
            adapter.check_columns(columns, unit.label)
        counts = ScanCounts()
        strangers: set[str] = set()
        rows = read_unit(unit, adapter.columns)
        while chunk := list(itertools.islice(rows, _CHUNK)):
            counts.rows_read += len(chunk)
            for row in self._take_questions(chunk, adapter.question):
                reason = self._reason_against(row, unit.source, counts.repaired)
                if reason is not None:
                    counts.skipped[reason] += 1
                if reason == "unknown_columns" and not strangers:
                    strangers.update(map(str, row))
        if strangers and counts.skipped["unknown_columns"] == counts.rows_read - counts.skipped["damaged_line"]:
            adapter.check_columns(list(strangers), unit.label)
        self._spill.flush()
        counts.threshold = self._spill.threshold
        return counts

    def _take_questions(self, rows: list[Any], column: str | None) -> list[Any]:
        """Take the rows that are one question and need no repair, all at once; returns the others."""
        if column is None:
            return rows
        texts, others = [], []
        for row in rows:
            text = row.get(column) if type(row) is dict else None
            if type(text) is str and "\r" not in text and "\x00" not in text and (text := text.strip()):
                texts.append(text)
            else:
                others.append(row)
        try:
            self._spill_all(encode_questions(texts))
        except TypeError:
            # Lone surrogates, somewhere: one at a time.
            return rows
        return others

    def _spill_all(self, payloads: list[bytes]) -> None:
        """Spill payloads that are their own basis."""
        ids = [_BLAKE2B(payload, digest_size=16).digest() for payload in payloads]
        # The same as prompt.content_id and prompt.order_key, without going through text.
        keys = [_BLAKE2B(hexlify(row_id), digest_size=8, key=self._seed).digest() for row_id in ids]
        self._spill.add(keys, ids, payloads)

    def _reason_against(self, row: Any, source: int, repaired: Counter[str]) -> str | None:
        """Take one row; why not, where it cannot be used."""
        try:
            if type(row) is not dict:
                return "damaged_line" if row is DAMAGED else "not_an_object"
            conversation = self._adapters[source].conversation(row)
            selection = self._select[source](conversation.messages)
            payload, basis, repairs = encode_selection(selection, conversation.tools, conversation.identity)
        except SkipRow as skip:
            return skip.reason
        except RecursionError:
            return "nested_too_deeply"
        repaired.update(repairs)
        row_id = content_id(basis)
        self._spill.add([bytes.fromhex(order_key(self._seed_number, row_id))], [bytes.fromhex(row_id)], [payload])
        return None
