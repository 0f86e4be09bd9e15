"""Repairing a journal before it is written to: what is no row goes to a side file, and only rows and blanks stay.

A torn tail is cut off; damage inside the file is overwritten with blanks of the same length, so nothing else moves. Whatever is
removed lies in the side file first, synced. So a repair that is itself cut short is simply repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftmill.errors import TemporaryError
from draftmill.generation.rows import Unreadable, parse_line
from draftmill.generation.scan import JournalIndex

_PIECE = 1 << 16


@dataclass(frozen=True)
class Repair:
    """What was done: bytes of a torn tail, damaged pieces inside, and the side file that has them now."""

    torn_bytes: int = 0
    pieces: int = 0
    side_file: Path | None = None

    def __str__(self) -> str:
        found = [f"a torn tail of {self.torn_bytes} bytes"] if self.torn_bytes else []
        found += [f"{self.pieces} unreadable {'piece' if self.pieces == 1 else 'pieces'}"] if self.pieces else []
        return f"{' and '.join(found)} moved to {self.side_file}" if found else "nothing to repair"


def side_file(path: Path) -> Path:
    """Where the damaged pieces of the journal at `path` are kept."""
    return path.with_suffix(".unreadable")


def end_last_line(path: Path) -> None:
    """Give the last line its newline where that is all it lacks: a whole row is no damage.

    Raises TemporaryError where that byte cannot be written. Does nothing to an absent file.
    """
    try:
        stream = path.open("r+b")
    except FileNotFoundError:
        return
    with stream:
        size = stream.seek(0, os.SEEK_END)
        start = _last_line(stream.fileno(), size)
        if start == size:
            return
        try:
            parse_line(os.pread(stream.fileno(), size - start, start))
            os.pwrite(stream.fileno(), b"\n", size)
        except Unreadable:
            return
        except OSError as error:
            raise TemporaryError(f"{path}: the last row cannot be ended: {error.strerror}; free space and run again") from None


def _last_line(descriptor: int, size: int) -> int:
    """Where the last line begins: behind the last newline."""
    end = size
    while end > 0:
        begin = max(0, end - _PIECE)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def repair(path: Path, index: JournalIndex) -> Repair:
    """Repair the journal at `path`, whose state `index` describes. The caller holds the writer's lock.

    Raises TemporaryError, with the journal unchanged, where the side file cannot be written.
    """
    if index.torn is None and not index.unreadable:
        return Repair()
    pieces = index.unreadable + ([index.torn] if index.torn else [])
    with path.open("r+b") as stream:
        descriptor = stream.fileno()
        _keep(side_file(path), (os.pread(descriptor, piece.length, piece.start) for piece in pieces))
        for piece in index.unreadable:
            os.pwrite(descriptor, b" " * piece.length, piece.start)
        os.ftruncate(descriptor, index.size)
        os.fsync(descriptor)
    return Repair(index.torn.length if index.torn else 0, len(index.unreadable), side_file(path))


def _keep(path: Path, pieces: Iterable[bytes]) -> None:
    try:
        with path.open("ab") as stream:
            stream.writelines(piece + b"\n" for piece in pieces)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise TemporaryError(f"{path}: damage cannot be set aside: {error.strerror}; free space and run again") from None
