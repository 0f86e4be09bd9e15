"""Small file operations that every room shares: whole or not at all, and one holder at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a write that found no room: a full disk, a quota, a limit on the size of files."""


def fsync_directory(path: Path) -> None:
    """Make a rename or a new name in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_writer(path: Path, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A binary file that appears at `path` whole, or not at all.

    It is written beside its final name, synced, renamed, and the folder is synced. On any error the partial file is removed and
    what stood at `path` stays as it was. What a writer that was killed left beside `path` is removed by the next one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent, f".{glob.escape(path.name)}.*.tmp")
    descriptor, temporary = _locked_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the partial files of `atomic_writer` that match `pattern` and that nobody is writing any more."""
    for partial in folder.glob(pattern):
        with contextlib.suppress(OSError):  # renamed or removed meanwhile, or still locked by its writer
            descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                partial.unlink()
            finally:
                os.close(descriptor)


def _locked_temporary(path: Path) -> tuple[int, Path]:
    """A partial file beside `path`, locked for as long as its writer lives."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # another writer saw it before it was locked, and removed it as abandoned


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_writer(path, mode) as stream:
        stream.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_json(path: Path) -> Any | None:
    """The JSON value at `path`, or None where the file is absent or not whole JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return None


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of the file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class FileLock:
    """An exclusive lock on a file that the kernel frees when its holder dies, however it dies.

    The file itself stays: removing a lock file would let two holders lock two different files of one name.
    The descriptor is not inherited by child processes, so a child that outlives its parent does not hold on to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, note: str = "") -> bool:
        """Take the lock without waiting; False where somebody else holds it. `note` is written into the file for people."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        with contextlib.suppress(OSError):  # the lock holds on a full disk too; only its note is missing then
            os.ftruncate(descriptor, 0)
            os.write(descriptor, note.encode())
        self._descriptor = descriptor
        return True

    def fileno(self) -> int:
        """The locked descriptor, to hand the lock on to a child process. ValueError where the lock is not held."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is not locked by this process")
        return self._descriptor

    def holder(self) -> str:
        """The note of whoever holds (or last held) the lock."""
        try:
            return self.path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def release(self) -> None:
        """Let go; harmless where the lock is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
