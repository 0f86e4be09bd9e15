"""A growing log, read piece by piece by somebody who only remembers an offset.

A piece ends at a line's end, so that no character is ever split. Bytes that are not UTF-8 come out as U+FFFD. Carriage returns are
folded as a terminal would: of a progress bar only the last state is left. Memory is bounded by the piece's size, whatever the log holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

OUTRUN_BYTES = 4 << 20
"""An asker further behind than this gets the end of the log and the number of bytes left out."""


@dataclass(frozen=True)
class LogPiece:
    """Text of the log, and where the next piece starts. `skipped` counts bytes on the way that are in no piece."""

    text: str
    offset: int
    skipped: int = 0
    more: bool = False


def whole_characters(block: bytes) -> int:
    """How many bytes of `block` can be cut off without splitting a UTF-8 character at the end; all where it ends in no character."""
    for back in range(1, min(4, len(block)) + 1):
        byte = block[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(block) - back if size > back and len(block) > back else len(block)
    return len(block)


def fold(text: str) -> str:
    """Keep of each line what a terminal would show after its last carriage return."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _starts_line(stream: BinaryIO, offset: int) -> bool:
    if offset == 0:
        return True
    stream.seek(offset - 1)
    return stream.read(1) in (b"\n", b"\r")


def _next_line(stream: BinaryIO, offset: int, step: int) -> int:
    """Where the next line starts at or after `offset`, or the end of the file where there is none."""
    stream.seek(offset)
    while block := stream.read(step):
        ends = [end for end in (block.find(b"\n"), block.find(b"\r")) if end >= 0]
        if ends:
            return offset + min(ends) + 1
        offset += len(block)
    return offset


def _render(block: bytes, max_bytes: int, last: bool) -> tuple[str, int]:
    """The text that `block` gives now, and how many of its bytes that uses up. `last`: nothing will ever follow."""
    if last:
        return fold(block.decode(errors="replace")), len(block)
    end = block.rfind(b"\n") + 1
    if end:
        return fold(block[:end].decode(errors="replace")), end
    if len(block) < max_bytes:
        return "", 0
    end = block.rfind(b"\r") + 1
    if end:
        return fold(block[:end].decode(errors="replace")) + "\n", end
    end = whole_characters(block)
    return f"{block[:end].decode(errors='replace')} [the line is cut here: it is longer than {max_bytes} bytes]\n", end


def read_piece(path: Path, offset: int, max_bytes: int, over: bool) -> LogPiece:
    """The next piece of at most `max_bytes` of the log from `offset` on; empty where the log is absent.

    `over`: nobody writes to the log any more, so that a last line without an end is given too.
    The rest of a line that was cut is skipped. An offset beyond the end belongs to another log, and reading begins at the start.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return LogPiece("", 0)
    with stream:
        size = os.fstat(stream.fileno()).st_size
        asked = offset if offset <= size else 0
        start = size - max_bytes if size - asked > max(OUTRUN_BYTES, max_bytes) else asked
        if not _starts_line(stream, start):
            start = _next_line(stream, start, max_bytes)
        stream.seek(start)
        block = stream.read(max_bytes)
    text, used = _render(block, max_bytes, over and start + len(block) >= size)
    rest = size - start - used
    return LogPiece(text, start + used, start - asked, rest > 0 and (over or rest >= max_bytes))
