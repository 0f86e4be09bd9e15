"""An external sort of prompts by order key: processes spill to buckets of a key range each, buckets are then sorted one at a time.

Two files a bucket and process: `.rows` has candidates (key 8 bytes, id 16 bytes, length 4 bytes, payload), `.keys` has the key of every
usable row, candidate or not. Rows have big-endian keys, so that bytes sort like
numbers. Memory holds one bucket, whatever the size of the source.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD = struct.Struct(">8s16sI")
_FLUSH_ROWS = 20_000
_NO_LIMIT = b"\xff" * 9
"""Above every key."""
_FLUSH_BYTES = 4 << 20
_BUCKET_BYTES = 8 << 20
"""Stored bytes of a source for one bucket; what is compressed grows several times when it is read."""
_MOST_BUCKETS = 1024


def bucket_count(source_bytes: int) -> int:
    """How many buckets (a power of two) keep one bucket's rows at a few dozen MB."""
    count = 1
    while count < _MOST_BUCKETS and count * _BUCKET_BYTES < source_bytes:
        count *= 2
    return count


class Spill:
    """One process's part of the sort.

    keep: how many of the smallest keys matter; None keeps every row.
    """

    def __init__(self, folder: Path, name: str, buckets: int, keep: int | None) -> None:
        self._folder, self._name = folder, name
        self._shift = 64 - (buckets.bit_length() - 1)
        self._keep = keep
        self._kept: list[bytes] = []
        self._rows: dict[int, list[bytes]] = {}
        self._rows_bytes = 0
        self._keys: list[bytes] = []
        self._limit = b"" if keep == 0 else _NO_LIMIT

    @property
    def threshold(self) -> bytes | None:
        """The key above which candidates were left out; None where none were."""
        return None if self._limit == _NO_LIMIT else self._limit

    def add(self, keys: list[bytes], ids: list[bytes], payloads: list[bytes]) -> None:
        """Take usable rows."""
        self._keys += keys
        for place, key in enumerate(keys):
            if key <= self._limit:
                self._candidate(key, ids[place], payloads[place])
        if len(self._keys) >= _FLUSH_ROWS or self._rows_bytes >= _FLUSH_BYTES:
            self.flush()

    def _candidate(self, key: bytes, row_id: bytes, payload: bytes) -> None:
        pieces = self._rows.setdefault(int.from_bytes(key, "big") >> self._shift, [])
        pieces += (_HEAD.pack(key, row_id, len(payload)), payload)
        self._rows_bytes += len(payload)
        if self._keep is not None:
            self._kept.append(key)
            if len(self._kept) >= 2 * self._keep + _FLUSH_ROWS:
                self._lower_threshold(self._keep)

    def _lower_threshold(self, keep: int) -> None:
        distinct = sorted(set(self._kept))
        if len(distinct) > keep:
            self._limit = distinct[keep - 1]
        self._kept = distinct[:keep]

    def flush(self) -> None:
        """Write what is held."""
        for bucket, pieces in self._rows.items():
            with (self._folder / f"{bucket:04d}-{self._name}.rows").open("ab") as stream:
                stream.writelines(pieces)
        self._rows, self._rows_bytes = {}, 0
        self._flush_keys()

    def _flush_keys(self) -> None:
        import numpy as np

        if not self._keys:
            return
        keys = np.sort(np.frombuffer(b"".join(self._keys), dtype=">u8").astype(np.uint64))
        self._keys = []
        numbers = (keys >> np.uint64(self._shift)) if self._shift < 64 else np.zeros(len(keys), np.uint64)
        starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            with (self._folder / f"{int(numbers[start]):04d}-{self._name}.keys").open("ab") as stream:
                stream.write(keys[start:end].tobytes())


def candidates(folder: Path) -> Iterator[tuple[bytes, bytes, bytes]]:
    """All distinct candidates as (key, id, payload), by key. Of rows with one id the smallest payload is taken, on any machine the same."""
    for paths in _by_bucket(folder, "rows"):
        rows = sorted(row for path in paths for row in _read_rows(path))
        last = b""
        for row in rows:
            if row[1] != last:
                yield row
            last = row[1]


def distinct_keys(folder: Path) -> Iterator[Any]:
    """The keys of all usable rows, sorted, each once, in pieces: arrays of uint64."""
    import numpy as np

    for paths in _by_bucket(folder, "keys"):
        yield np.unique(np.concatenate([np.fromfile(path, dtype=np.uint64) for path in paths]))


def _by_bucket(folder: Path, suffix: str) -> list[list[Path]]:
    """The files of each bucket that has some, buckets in order."""
    found: dict[str, list[Path]] = {}
    for path in folder.glob(f"*.{suffix}"):
        found.setdefault(path.name.split("-", 1)[0], []).append(path)
    return [found[bucket] for bucket in sorted(found)]


def _read_rows(path: Path) -> Iterator[tuple[bytes, bytes, bytes]]:
    with path.open("rb") as stream:
        while head := stream.read(_HEAD.size):
            key, row_id, length = _HEAD.unpack(head)
            yield key, row_id, stream.read(length)
