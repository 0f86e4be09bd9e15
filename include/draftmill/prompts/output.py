"""The second pass: candidates rendered in work order, and the prompts file written."""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from draftmill.prompts.answered import AnsweredPrompts, Kept
from draftmill.prompts.earlier import Earlier
from draftmill.prompts.rendering import BATCH, Line, RenderRequest, render_batch
from draftmill.prompts.sorting import SortedRows
from draftmill.prompts.workers import Workers


@dataclass
class Tally:
    """What became of the candidates, and of the file.

    prompts: lines written. answered_only: order keys of those that are there only because they were answered.
    skipped: by reason, candidates that gave no prompt. special_text: candidates whose user text spelled a control token.
    """

    prompts: int = 0
    answered_only: list[int] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    special_text: int = 0
    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class _Item:
    """Something that stands in the work order: a candidate to render, or a line that is kept as it is, or both."""

    id: str
    payload: bytes | None
    kept: Kept | None


class TooFew(Exception):  # noqa: N818 - an outcome: the caller scans again for more
    """The candidates ran out before the wanted number of prompts, and the source has more rows."""


class PromptWriter:
    """Writes the prompts file to `stream`."""

    def __init__(self, stream: IO[bytes], answered: AnsweredPrompts, earlier: Earlier) -> None:
        self._stream = stream
        self._answered = answered
        self._earlier = earlier
        self._digest = hashlib.sha256()
        self.tally = Tally()

    def write(self, workers: Workers, request: RenderRequest, rows: SortedRows, wanted: int | None, report: Callable[[int], None]) -> Tally:
        """Render until `wanted` prompts are written. Raises TooFew where another scan may find more."""
        written: set[str] = set()
        batches, again = itertools.tee(self._batches(rows))
        results = workers.run(functools.partial(render_batch, request, _candidates(batch)) for batch in batches)
        for batch, lines in zip(again, results, strict=True):
            self._write_batch(batch, iter(lines), wanted, written)
            report(self.tally.prompts)
            if self.tally.prompts == wanted:
                break
        if not rows.complete and self.tally.prompts != wanted:
            raise TooFew
        for kept in self._answered:
            if kept.id not in written:
                self._put(self._answered.line(kept))
                self.tally.answered_only.append(int(kept.key, 16))
        self.tally.sha256 = self._digest.hexdigest()
        return self.tally

    def _batches(self, rows: SortedRows) -> Iterator[list[_Item]]:
        items = self._items(rows)
        while batch := list(itertools.islice(items, BATCH)):
            yield batch

    def _items(self, rows: SortedRows) -> Iterator[_Item]:
        """Candidates that no earlier data set has, merged with the kept lines."""
        fresh = ((key.hex(), row_id, payload) for key, row_id, payload in self._earlier.leave_out(rows.candidates()))
        kept = ((line.key, line.id, line) for line in self._answered)
        merged = heapq.merge(fresh, kept, key=lambda item: item[:2])
        for (_, row_id), group in itertools.groupby(merged, key=lambda item: item[:2]):
            parts = [item[2] for item in group]
            payload = next((part for part in parts if isinstance(part, bytes)), None)
            yield _Item(row_id, payload, next((part for part in parts if isinstance(part, Kept)), None))

    def _write_batch(self, batch: list[_Item], lines: Iterator[Line], wanted: int | None, written: set[str]) -> None:
        for item in batch:
            line = next(lines) if item.kept is None else (self._answered.line(item.kept), None, False)
            if self.tally.prompts == wanted:
                return
            if item.kept is not None:
                written.add(item.id)
                if item.payload is None:
                    self.tally.answered_only.append(int(item.kept.key, 16))
            self._count(line)

    def _count(self, line: Line) -> None:
        text, reason, special_text = line
        self.tally.special_text += special_text
        if text is not None:
            self._put(text)
        elif reason is not None:
            self.tally.skipped[reason] += 1

    def _put(self, line: bytes) -> None:
        self._stream.write(line)
        self._digest.update(line)
        self.tally.prompts += 1
        self.tally.bytes += len(line)


def _candidates(batch: list[_Item]) -> list[tuple[str, bytes]]:
    return [(item.id, item.payload) for item in batch if item.kept is None and item.payload is not None]
