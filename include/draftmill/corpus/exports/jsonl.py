"""Training rows as JSONL: the lines of the records as they are. Read by SpecForge and by speculators."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from draftmill.corpus.exports.sink import Row

COMPRESSION_LEVEL = 3


class JsonlSink:
    """Writes `SPLIT.jsonl`, or `SPLIT/00000.jsonl`, `SPLIT/00001.jsonl`, ... of `shard_rows` rows each; `.zst` behind it when compressed."""

    def __init__(self, folder: Path, split: str, shard_rows: int, compress: bool) -> None:
        self.folder = folder
        self.split = split
        self.shard_rows = shard_rows
        self.suffix = ".jsonl.zst" if compress else ".jsonl"
        self.rows = 0
        self._raw: IO[bytes] | None = None
        self._stream: Any = None
        self._open()

    def _path(self) -> Path:
        if not self.shard_rows:
            return self.folder / f"{self.split}{self.suffix}"
        return self.folder / self.split / f"{self.rows // self.shard_rows:05d}{self.suffix}"

    def _open(self) -> None:
        path = self._path()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = path.open("wb")
        self._stream = self._raw
        if self.suffix.endswith(".zst"):
            import zstandard

            self._stream = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).stream_writer(self._raw, closefd=False)

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self.shard_rows and self.rows and self.rows % self.shard_rows == 0:
            self.close()
            self._open()
        self._stream.write(row.line)
        self.rows += 1

    def close(self) -> None:
        """Complete the current file."""
        if self._raw is not None:
            if self._stream is not self._raw:
                self._stream.close()
            self._raw.close()
            self._raw = None


def corpus_path(folder: Path, split: str, shard_rows: int, compress: bool) -> Path:
    """The file of a split, or the folder of its shards."""
    if shard_rows:
        return folder / split
    return folder / f"{split}.jsonl{'.zst' if compress else ''}"
