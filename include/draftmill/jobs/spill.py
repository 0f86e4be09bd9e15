"""A log that cannot fill the disk: the oldest part of an overlong log gives its space back, while offsets stay what they were."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

LIMIT_BYTES = 256 << 20
"""A log may take this much of the disk."""
KEPT_BYTES = 64 << 20
"""What is left of a log that grew beyond the limit: its end."""

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # fallocate(2)


def trim_log(path: Path, limit: int = LIMIT_BYTES, kept: int = KEPT_BYTES) -> bool:
    """Where the log takes more than `limit` bytes of disk, free all but its last `kept` bytes. True where that was done.

    The freed part reads as zeros. Readers that far behind are sent to the end of the log anyway (`logtail.OUTRUN_BYTES`).
    Does nothing on file systems that cannot free a part of a file (NFS before 4.2).
    """
    with path.open("r+b") as stream:
        stat = os.fstat(stream.fileno())
        if stat.st_blocks * 512 <= limit:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        length = ctypes.c_int64(max(0, stat.st_size - kept))
        return bool(libc.fallocate(stream.fileno(), _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(0), length) == 0)
