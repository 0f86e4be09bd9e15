"""What every export has in common."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol

from draftmill.corpus.record import Row


class Sink(Protocol):
    """An export of one split, as a context manager. Its files lie below a folder that nobody reads yet, and are whole after the block.

    hashes: SHA-256 of files that were hashed while they were written, by path, so that nobody has to read them again.
    """

    hashes: dict[Path, str]

    def __enter__(self) -> Sink:
        """Open the files."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Complete the files; after an error, only let go of them."""

    def add(self, row: Row) -> None:
        """Take the next row."""
