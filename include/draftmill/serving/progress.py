"""Signs that a server is getting on: while it loads, and while it generates.

Loading a big model takes minutes from the page cache and half an hour from disk, so time alone says nothing. What counts is that
something moves: log lines, GPU memory, disk reads, resident memory, or new helper processes (compilers).
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from draftmill.jobs.proc import PROC, ProcessStat

ACCESS_LINE = re.compile(rb'"(?:GET|POST|PUT|HEAD) /')
_BATCH_LINE = re.compile(rb"(?:Prefill|Decode) batch|gen throughput|Finish: ")
_MEMORY_STEP = 64 << 20
_READ_STEP = 1 << 20
_PIECE = 1 << 20


class LogFollower:
    """Reads what was appended to a log since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[bytes]:
        """Whole lines since the last look; a progress bar's carriage returns end lines, too."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                piece = stream.read(_PIECE)
        except FileNotFoundError:
            return []
        self._offset += len(piece)
        *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        return [line for line in lines if line.strip()]


def _read_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "io").read_bytes().splitlines():
            if line.startswith(b"read_bytes:"):
                return int(line.split()[1])
    return 0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * 4096
    return 0


class LoadProgress:
    """Watches one launch until it is ready. Peaks are kept, so that a value that only swings is no progress."""

    def __init__(self) -> None:
        self.moved_at = time.monotonic()
        self._pids: set[int] = set()
        self._peaks: dict[str, int] = {}

    @property
    def still_s(self) -> float:
        """Seconds since anything moved."""
        return time.monotonic() - self.moved_at

    def look(self, members: list[ProcessStat], lines: list[bytes], gpu_used: int) -> None:
        """Take in one look: who lives, what was logged, and bytes in use on the GPUs."""
        # Our own questions leave access lines in the log; these are no sign of life.
        signs = [any(not ACCESS_LINE.search(line) for line in lines)]
        pids = {stat.pid for stat in members}
        signs += [
            bool(pids - self._pids),
            self._grew("reads", sum(map(_read_bytes, pids)), _READ_STEP),
            self._grew("resident", sum(map(_resident_bytes, pids)), _MEMORY_STEP),
            self._grew("gpu", gpu_used, _MEMORY_STEP),
        ]
        self._pids |= pids
        if any(signs):
            self.moved_at = time.monotonic()

    def _grew(self, name: str, value: int, step: int) -> bool:
        if value < self._peaks.get(name, 0) + step:
            return False
        self._peaks[name] = value
        return True


def mentions_batch(lines: list[bytes]) -> bool:
    """Whether the server logged that it computed a batch."""
    return any(_BATCH_LINE.search(line) for line in lines)
