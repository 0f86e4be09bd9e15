"""Training rows as JSONL, read by SpecForge and by speculators."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from draftmill.corpus.exports.file import ExportFile
from draftmill.corpus.record import Row


class JsonlSink:
    """Writes `SPLIT.jsonl`, or shards `SPLIT/00000.jsonl`, `SPLIT/00001.jsonl`, ... of `shard_rows` rows each.

    The names end in `.zst` when compressed.
    """

    def __init__(self, folder: Path, split: str, shard_rows: int, compress: bool) -> None:
        self.folder = folder
        self.split = split
        self.shard_rows = shard_rows
        self.suffix = ".jsonl.zst" if compress else ".jsonl"
        self.rows = 0
        self.hashes: dict[Path, str] = {}

    def __enter__(self) -> JsonlSink:
        self._file = self._next_file()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)
        self.hashes[self._file.path] = self._file.sha256

    def _next_file(self) -> ExportFile:
        name = f"{self.split}/{self.rows // self.shard_rows:05d}" if self.shard_rows else self.split
        return ExportFile(self.folder / f"{name}{self.suffix}").__enter__()

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self.shard_rows and self.rows and self.rows % self.shard_rows == 0:
            self.__exit__(None, None, None)
            self._file = self._next_file()
        for piece in row.line():
            self._file.write(piece)
        self.rows += 1


def split_path(folder: Path, split: str, shard_rows: int, compress: bool) -> Path:
    """The file of a split, or the folder of its shards."""
    return folder / split if shard_rows else folder / f"{split}.jsonl{'.zst' if compress else ''}"
