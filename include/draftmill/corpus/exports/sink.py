"""What every export has in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from draftmill.corpus.record import Head, parse_head, parse_ids

if TYPE_CHECKING:
    from draftmill.corpus.record import Ids


@dataclass(frozen=True)
class Row:
    """One record on its way into the exports: its line, and its parts parsed once, when the first export asks."""

    line: bytes

    @cached_property
    def head(self) -> Head:
        """Where the row comes from."""
        return parse_head(self.line)

    @cached_property
    def ids(self) -> Ids:
        """Token ids, shape [head.tokens]; checked against the head and the mask."""
        return parse_ids(self.line, self.head)


class Sink(Protocol):
    """An export of one split. Files are written below a folder that nobody reads yet."""

    def add(self, row: Row) -> None:
        """Take the next row."""

    def close(self) -> None:
        """Complete the files. Called once, after the last row; not called when the merge failed."""
