"""Parquet, row group by row group, only the columns that are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftmill.errors import PermanentError
from draftmill.sources.readers.files import open_raw, reading
from draftmill.sources.readers.json_lines import DAMAGED

_BATCH_ROWS = 1024


def _open(path: str, stream: Any) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, ValueError) as error:
        raise PermanentError(f"{path}: is no whole Parquet file ({' '.join(str(error).split())}); fetch the file again") from None


def row_groups(path: str) -> tuple[list[str], list[int]]:
    """The file's columns, and the rows of each row group."""
    with reading(path), open_raw(path) as stream:
        file = _open(path, stream)
        meta = file.metadata
        return list(file.schema_arrow.names), [meta.row_group(index).num_rows for index in range(meta.num_row_groups)]


def read_parquet(path: str, columns: tuple[str, ...], start: int, end: int) -> Iterator[Any]:
    """The rows of row groups [start, end) as plain Python, without columns that are not in `columns`; damaged ones as DAMAGED."""
    import pyarrow as pa

    with reading(path), open_raw(path) as stream:
        file = _open(path, stream)
        wanted = [name for name in file.schema_arrow.names if name in columns]
        try:
            for batch in file.iter_batches(_BATCH_ROWS, list(range(start, end)), wanted, use_threads=False):
                yield from _plain_rows(batch)
        except pa.ArrowException as error:
            raise PermanentError(f"{path}: damaged Parquet ({' '.join(str(error).split())}); fetch the file again") from None


def _plain_rows(batch: Any) -> list[Any]:
    """The rows of a batch. One that holds what Python cannot (text that is no UTF-8, a date out of range) spoils no other."""
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError):
        return [_plain_row(batch.slice(number, 1)) for number in range(batch.num_rows)]


def _plain_row(batch: Any) -> Any:
    try:
        return batch.to_pylist()[0]
    except (ValueError, OverflowError):
        return DAMAGED
