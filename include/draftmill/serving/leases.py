"""Lease files: who needs the server. The lock on a file is the lease, and the kernel frees it with the holder's process.

Files have unique names, so a stale one (its lock is free) can be removed by anybody. The one race, a file removed between its making
and its locking, is seen by the holder: the file it locked has no name any more, and it makes another one.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from draftmill.files import FileLock, read_json


@dataclass(frozen=True)
class LeaseNote:
    """What a holder says about itself. `owner` is for people: campaign and data set."""

    owner: str
    pid: int
    request: str
    since: float

    def __str__(self) -> str:
        return f"{self.owner} (pid {self.pid})"


class LeaseFile:
    """One held lease."""

    def __init__(self, folder: Path, owner: str, request: str) -> None:
        """Take a lease; it is held until `release` or until the process ends, however it ends."""
        note = orjson.dumps({"owner": owner, "pid": os.getpid(), "request": request, "since": time.time()}).decode()
        while True:
            self.path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.lease"
            self._lock = FileLock(self.path)
            if self._lock.acquire(note) and self.path.exists():
                return
            self._lock.release()

    def release(self) -> None:
        """Give the lease back."""
        self.path.unlink(missing_ok=True)
        self._lock.release()


def _removed_if_free(path: Path) -> bool:
    """Whether nobody held the file (it is removed then), or it is gone already."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read_note(path: Path) -> LeaseNote:
    value = read_json(path)
    if isinstance(value, dict):
        return LeaseNote(**value)
    return LeaseNote("somebody", 0, "", 0)  # the lock is taken a moment before the note is written


def held_leases(folder: Path, except_for: Path | None = None) -> list[LeaseNote]:
    """Notes of all leases held now, oldest first; files nobody holds any more are removed."""
    held = [path for path in folder.glob("*.lease") if path != except_for and not _removed_if_free(path)]
    return sorted(map(_read_note, held), key=lambda note: note.since)
