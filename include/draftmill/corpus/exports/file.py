"""One file of an export: written and hashed in the background, compressed where its name says so."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from draftmill.corpus.background import HashedWriter

COMPRESSION_LEVEL = 3


class ExportFile:
    """A new file at `path`. `.zst` at the end of its name compresses it. `sha256` is of the file's bytes, after the block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ExportFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            raw: IO[bytes] = stack.enter_context(self.path.open("wb"))
            self._writer = stack.enter_context(HashedWriter(raw))
            self.stream: Any = self._writer
            if self.path.suffix == ".zst":
                import zstandard

                compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
                self.stream = stack.enter_context(compressor.stream_writer(cast("IO[bytes]", self._writer), closefd=False))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)
        self.sha256 = self._writer.sha256

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.stream.write(data)
