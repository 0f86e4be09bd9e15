"""Prompts that an earlier data set of the plan has too, and so are left out of this one.

A prompt that several data sets have belongs to the first of them in the plan's order. Data sets are prepared side by side, so this must
not depend on who is faster: each data set's index (the sorted order keys of all its usable rows, chosen or not) depends on its own sources
and the seed alone, and whoever needs it first makes it, under a lock, for everyone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.errors import DraftmillError, StoppedError
from draftmill.files import FileLock, atomic_writer, remove_abandoned
from draftmill.jobs.step import StepContext

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Keys = npt.NDArray[np.uint64]

_POLL_S = 0.5
_TELL_EVERY = 20
_CHUNK = 1024
Row = tuple[bytes, str, bytes]


def index_path(prompts: Path, name: str, digest: str) -> Path:
    """Where the index of a data set with this source digest lies, beside the prompts files."""
    return prompts / f".{name}.{digest[:16]}.keys"


def write_index(path: Path, pieces: Iterable[Keys], name: str) -> None:
    """Write the sorted keys, 8 bytes each, and remove indexes of what the data set was before, whole or half written."""
    with atomic_writer(path) as stream:
        for keys in pieces:
            stream.write(keys.tobytes())
    for old in path.parent.glob(f".{name}.*.keys"):
        if old != path:
            old.unlink(missing_ok=True)
    remove_abandoned(path.parent, f"..{name}.*.keys.*.tmp")


class KeyIndex:
    """A sorted file of order keys, mapped into memory: it takes none that the system needs.

    Keys have 64 bits: of two data sets of five million prompts, a prompt is taken for another one with a chance of one in a million.
    """

    def __init__(self, path: Path) -> None:
        import numpy as np

        self._keys: Keys = np.memmap(path, dtype=np.uint64, mode="r") if path.stat().st_size else np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    def contains(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which of `keys` are in the index."""
        import numpy as np

        places = np.searchsorted(self._keys, keys)
        found = np.zeros(len(keys), bool)
        inside = places < len(self._keys)
        found[inside] = self._keys[places[inside]] == keys[inside]
        return found


class Earlier:
    """The indexes of all earlier data sets."""

    def __init__(self, indexes: list[KeyIndex]) -> None:
        self._indexes = indexes

    def contains(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which of `keys` an earlier data set has."""
        import numpy as np

        found = np.zeros(len(keys), bool)
        for index in self._indexes:
            found |= index.contains(keys)
        return found

    def leave_out(self, rows: Iterator[Row]) -> Iterator[Row]:
        """`rows`, which begin with their order key (8 bytes), without those that an earlier data set has."""
        import numpy as np

        if not self._indexes:
            yield from rows
            return
        while chunk := list(itertools.islice(rows, _CHUNK)):
            keys = np.frombuffer(b"".join(row[0] for row in chunk), dtype=">u8").astype(np.uint64)
            yield from (row for row, found in zip(chunk, self.contains(keys), strict=True) if not found)

    def count(self, keys: Iterable[Keys]) -> int:
        """How many of the distinct `keys`, given in pieces, an earlier data set has."""
        return sum(int(self.contains(piece).sum()) for piece in keys) if self._indexes else 0


def ensure_index(ctx: StepContext, path: Path, name: str, make: Callable[[], None]) -> KeyIndex:
    """The index at `path`: wait while somebody else makes it, make it where nobody does.

    The lock is held for this alone, and nobody waits for another lock while holding it.
    """
    lock = FileLock(path.parent / f".{name}.scan.lock")
    polls = 0
    while True:
        with contextlib.suppress(FileNotFoundError):
            return KeyIndex(path)
        if lock.acquire("scan"):
            try:
                if not path.exists():
                    make()
            finally:
                lock.release()
            continue
        if polls % _TELL_EVERY == 0:
            ctx.progress(f"{ctx.dataset.name}: waiting for the index of {name}, which another process makes")
        polls += 1
        ctx.stop.wait(_POLL_S)
        ctx.check_stop()


@contextlib.contextmanager
def announced(path: Path, name: str) -> Iterator[None]:
    """While a data set is scanned for its own prompts: let others wait for its index instead of scanning it as well."""
    lock = FileLock(path.parent / f".{name}.scan.lock")
    lock.acquire("scan")
    try:
        yield
    finally:
        lock.release()


def gather(ctx: StepContext, wanted: Sequence[tuple[str, Path, Callable[[], None]]]) -> tuple[Earlier, list[str]]:
    """The indexes of earlier data sets (name, path, how to make it), and the names of those that cannot be had.

    A data set whose source is broken does not fail the others. What they then share with it, the merge sorts out: it keeps the row of the
    first data set.
    """
    indexes, missing = [], []
    for name, path, make in wanted:
        found = _index_if_possible(ctx, path, name, make)
        if found is None:
            missing.append(name)
        else:
            indexes.append(found)
    return Earlier(indexes), missing


def _index_if_possible(ctx: StepContext, path: Path, name: str, make: Callable[[], None]) -> KeyIndex | None:
    try:
        return ensure_index(ctx, path, name, make)
    except StoppedError:
        raise
    except DraftmillError as error:
        ctx.progress(f"{ctx.dataset.name}: what it shares with {name} cannot be left out, as that cannot be read: {error}")
        return None
