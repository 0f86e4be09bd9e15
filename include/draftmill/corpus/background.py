"""A file that is written and hashed in a thread of its own, while its maker makes the next rows."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Iterator
from itertools import groupby
from types import TracebackType
from typing import IO, Any

PIECE_BYTES = 1 << 22
WAITING_PIECES = 3
"""At most this many handfuls of PIECE_BYTES wait: the memory of a slow disk is bounded."""

LARGE_BYTES = 1 << 18
"""A piece of this size is written by itself; copying it together with others would cost more than the call."""


class HashedWriter:
    """Takes bytes for `stream`, which it neither opens nor closes; use it as a context manager.

    After the block `size` and `sha256` are of all that was written. An error of the stream (a full disk) is raised by a later `write` or
    at the end of the block.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.size = 0
        self.sha256 = ""
        self.closed = False
        self._stream = stream
        self._digest = hashlib.sha256()
        self._pieces: list[Any] = []
        self._gathered = 0
        self._queue: queue.Queue[list[Any] | None] = queue.Queue(WAITING_PIECES)
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="hashed-writer", daemon=True)

    def __enter__(self) -> HashedWriter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._hand_over()
        self.closed = True
        self._queue.put(None)
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error
        self.sha256 = self._digest.hexdigest()

    def write(self, data: Any) -> int:
        """Take bytes, or any buffer of bytes that nobody changes any more (Arrow's are such): it is not copied here."""
        self._pieces.append(data)
        self._gathered += len(data)
        self.size += len(data)
        if self._gathered >= PIECE_BYTES:
            self._hand_over()
        return len(data)

    def flush(self) -> None:
        """Nothing to do: bytes become durable with the stream."""

    def _hand_over(self) -> None:
        if self._error is not None:
            raise self._error
        if self._pieces:
            self._queue.put(self._pieces)
            self._pieces, self._gathered = [], 0

    def _work(self) -> None:
        while (pieces := self._queue.get()) is not None:
            if self._error is not None:
                continue  # emptied, so that the maker never waits for a place in the queue
            try:
                for block in _blocks(pieces):
                    self._stream.write(block)
                    self._digest.update(block)
            except OSError as error:
                self._error = error


def _blocks(pieces: list[Any]) -> Iterator[Any]:
    """The same bytes in few blocks: small pieces put together, large ones as they are."""
    for large, group in groupby(pieces, key=lambda piece: len(piece) >= LARGE_BYTES):
        if large:
            yield from group
        else:
            yield b"".join(group)
