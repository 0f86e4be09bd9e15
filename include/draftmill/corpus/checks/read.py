"""Reading a corpus from its files, as a stranger would: no knowledge of how they were made."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson


def split_files(folder: Path, split: str) -> list[Path]:
    """The JSONL files of a split, in order: one file, or shards; compressed or not. Empty where the corpus has no such split."""
    single = [path for path in (folder / f"{split}.jsonl", folder / f"{split}.jsonl.zst") if path.is_file()]
    return single or sorted((folder / split).glob("*.jsonl*"))


def read_rows(folder: Path, split: str) -> Iterator[tuple[str, Any]]:
    """(`file:line`, value) for every row of a split. The value is None where the line is not JSON."""
    for path in split_files(folder, split):
        for number, line in enumerate(lines(path), 1):
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                value = None
            yield f"{path.relative_to(folder)}:{number}", value


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, decompressed where its name ends in `.zst`."""
    with path.open("rb") as raw:
        if path.suffix != ".zst":
            yield from raw
            return
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            yield from io.BufferedReader(plain)


def arrow_rows(folder: Path) -> Iterator[tuple[Any, Any, int]]:
    """(input_ids, loss_mask, seq_len) of every row of an Arrow data set, the first two as NumPy arrays."""
    import pyarrow as pa

    for path in sorted(folder.glob("data-*.arrow")):
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                ids, mask, lengths = batch.columns
                for number, length in enumerate(lengths.to_pylist()):
                    yield ids[number].values.to_numpy(), mask[number].values.to_numpy(), length
