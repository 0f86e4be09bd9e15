"""The records of one data set on disk.

```
records/DATASET.jsonl      one head a line (draftmill.corpus.record.Head)
records/DATASET.ids        the token ids of all rows, one after the other, as little-endian 32-bit integers
records/DATASET.meta.json  what they were made from, counts, hashes; written last
```

Heads and ids are apart because everything that a merge decides (order, split, length, weight) is in the heads, and because ids as
integers are read many times faster than as text. The loss mask needs no file: a head says how many tokens were sent and received.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import orjson

from draftmill.corpus.background import HashedWriter
from draftmill.corpus.record import Head, Row
from draftmill.files import atomic_writer

if TYPE_CHECKING:
    from draftmill.corpus.record import Ids

BYTES_PER_ID = 4


def ids_path(heads: Path) -> Path:
    """The file of ids that belongs to a file of heads."""
    return heads.with_suffix(".ids")


class RecordsWriter:
    """Writes both files under their final names when its block ends well, and leaves what stood there otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RecordsWriter:
        with contextlib.ExitStack() as stack:
            self.ids = stack.enter_context(HashedWriter(stack.enter_context(atomic_writer(ids_path(self.path)))))
            self.heads = stack.enter_context(HashedWriter(stack.enter_context(atomic_writer(self.path))))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, row: Row) -> None:
        """Append a row."""
        self.heads.write(orjson.dumps(row.head.to_json(), option=orjson.OPT_APPEND_NEWLINE))
        self.ids.write(row.ids.astype("<i4", copy=False).tobytes())


class RecordsReader:
    """Reads the heads in order, and any row by the place of its head and of its first id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RecordsReader:
        self._heads = self._stack.enter_context(self.path.open("rb"))
        self._ids = self._stack.enter_context(ids_path(self.path).open("rb"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def heads(self) -> Iterator[tuple[int, int, Head]]:
        """(offset, size, head) of every row, in file order; offsets and sizes in bytes of the file of heads."""
        offset = 0
        for line in self._heads:
            yield offset, len(line), Head(**orjson.loads(line))
            offset += len(line)

    def row(self, head_offset: int, head_size: int, first_id: int) -> Row:
        """The row whose head is at `head_offset` and whose ids begin `first_id` ids into the file of ids."""
        head = Head(**orjson.loads(os.pread(self._heads.fileno(), head_size, head_offset)))
        return Row(head, self._read_ids(first_id, head.tokens))

    def _read_ids(self, first: int, count: int) -> Ids:
        import numpy as np

        return np.frombuffer(os.pread(self._ids.fileno(), count * BYTES_PER_ID, first * BYTES_PER_ID), dtype="<i4")
