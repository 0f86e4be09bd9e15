"""The append-only file of responses of one data set: the one source of truth for what is done.

One writer, held by a lock that the kernel frees with the process. A row is appended whole, so a kill loses nothing that was appended;
a thread makes rows durable in groups, so a power cut loses at most SYNC_ROWS rows or SYNC_SECONDS seconds of them. Opening repairs:
see `repair`. A row that cannot be appended, for lack of space or otherwise, leaves no trace in the file.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from draftmill.errors import TemporaryError
from draftmill.files import NO_SPACE, FileLock, fsync_directory
from draftmill.generation.ids import IdIndex
from draftmill.generation.repair import Repair, end_last_line, repair
from draftmill.generation.response import Response
from draftmill.generation.rows import Row, Unreadable, read_row
from draftmill.generation.scan import JournalIndex, lines_of, scan

SYNC_ROWS = 64
SYNC_SECONDS = 2.0
_SYNC_EARLY = 0.5
"""Syncing begins at this part of both limits, so that it is over before they are reached."""


class NoSpace(TemporaryError):  # noqa: N818 - says what happened
    """The row was not written, because no space is left; the file is as it was before."""


def read_responses(path: Path, seen: Counter[str] | None = None, parse: Callable[[bytes], Row] = read_row) -> Iterator[Response]:
    """Every response in the journal at `path` once, in file order, one at a time. Repairs nothing.

    Lines that are no responses are skipped. `seen` counts `responses`, `unreadable`, `doubled` (an id that came before) and `older`
    (rows of older layouts). A file that is still being written may be read: its unfinished last line is left out. `parse` makes the
    row of a line, or raises Unreadable.
    """
    seen = Counter() if seen is None else seen
    ids = IdIndex()
    for _, line in lines_of(path):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except Unreadable:
            seen["unreadable"] += 1
            continue
        if row.response.id in ids:
            seen["doubled"] += 1
            continue
        ids.add(row.response.id)
        seen["older"] += row.older
        seen["responses"] += 1
        yield row.response


class Journal:
    """The writer. Use as a context manager; one thread may append.

    index: what was in the file when it was opened, kept up to date by `append` as far as ids go. repaired: what opening had to do.
    """

    def __init__(self, path: Path, lock: Path, owner: str) -> None:
        """Take the lock, repair, index. TemporaryError names the holder where there is another writer."""
        self.path = path
        self._lock = FileLock(lock)
        if not self._lock.acquire(f"{owner}, process {os.getpid()}"):
            raise TemporaryError(f"{path}: being written by {self._lock.holder() or 'another process'}; wait for it or stop it")
        try:
            end_last_line(path)
            self.index: JournalIndex = scan(path)
            self.repaired: Repair = repair(path, self.index)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fsync_directory(path.parent)
        except BaseException:
            self._lock.release()
            raise
        self._size = self.index.size
        self._committer = _Committer(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __contains__(self, prompt_id: str) -> bool:
        return prompt_id in self.index.ids

    def append(self, response: Response) -> None:
        """Write one row. NoSpace or TemporaryError where it could not be written: the file is then unchanged."""
        line = response.to_line()
        self._committer.before_append()
        try:
            self._write(line)
        except OSError as error:
            self._undo()
            kind = NoSpace if error.errno in NO_SPACE else TemporaryError
            raise kind(f"{self.path}: a response could not be written: {error.strerror}; free space and run again") from error
        self.index.ids.add(response.id, self._size)
        self._size += len(line)
        self._committer.appended()

    def _write(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        while written < len(line):
            written += os.write(self._descriptor, line[written:])

    def _undo(self) -> None:
        """Cut a half-written row off, so that the file stays valid for whoever reads it next."""
        os.ftruncate(self._descriptor, self._size)

    def read(self, prompt_id: str) -> Response | None:
        """The response with this id, or None."""
        place = self.index.ids.place(prompt_id)
        if place is None or place < 0:
            return None
        with self.path.open("rb") as stream:
            stream.seek(place)
            return read_row(stream.readline()).response

    def sync(self) -> None:
        """Make every appended row durable now."""
        self._committer.sync()

    def close(self) -> None:
        """Sync and let go of the lock; a second call does nothing."""
        if self._lock.held:
            try:
                self._committer.close()
            finally:
                os.close(self._descriptor)
                self._lock.release()


class _Committer:
    """A thread that syncs the file when enough rows are waiting or the oldest has waited long enough."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._waiting = 0
        self._oldest = 0.0
        self._closing = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def before_append(self) -> None:
        """Hold the writer back while as many rows as may be lost are not durable yet."""
        with self._changed:
            while self._waiting >= SYNC_ROWS and self._error is None:
                self._changed.wait()
            self._check()

    def appended(self) -> None:
        """Note one more row."""
        with self._changed:
            if not self._waiting:
                self._oldest = time.monotonic()
            self._waiting += 1
            if self._waiting in (1, int(SYNC_ROWS * _SYNC_EARLY)):
                self._changed.notify_all()

    def sync(self) -> None:
        """Sync in the caller's thread."""
        with self._changed:
            rows = self._waiting
        self._sync(rows)
        with self._changed:
            self._check()

    def close(self) -> None:
        """End the thread and sync what is left."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self.sync()

    def _check(self) -> None:
        if self._error is not None:
            raise TemporaryError(f"the journal could not be made durable: {self._error.strerror}; check the disk and run again")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._due():
                    self._changed.wait(self._patience())
                if self._closing:
                    return
                rows = self._waiting
            self._sync(rows)

    def _due(self) -> bool:
        return self._waiting >= SYNC_ROWS * _SYNC_EARLY or (self._waiting > 0 and self._patience() == 0)

    def _patience(self) -> float | None:
        return max(0.0, self._oldest + SYNC_SECONDS * _SYNC_EARLY - time.monotonic()) if self._waiting else None

    def _sync(self, rows: int) -> None:
        """Sync; `rows` is how many were waiting before, so that rows appended meanwhile go on waiting."""
        error = None
        began = time.monotonic()
        try:
            os.fdatasync(self._descriptor)
        except OSError as failure:
            error = failure
        with self._changed:
            self._waiting = max(0, self._waiting - rows)
            self._oldest = began
            self._error = self._error or error
            self._changed.notify_all()
