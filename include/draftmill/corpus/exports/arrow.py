"""Training rows as an Arrow data set, as `Dataset.save_to_disk` lays it out: read by `datasets.load_from_disk` and by speculators.

Written here batch by batch: the library's own way goes through a second copy of all rows in its cache. The layout is that of datasets
2.x to 5.x: Arrow streams `data-NNNNN-of-NNNNN.arrow`, `dataset_info.json` with the features, `state.json` with the files and the format.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from draftmill.corpus.exports.file import ExportFile
from draftmill.corpus.record import Row
from draftmill.files import write_json

COLUMNS = ("input_ids", "loss_mask", "seq_len")

BATCH_TOKENS = 1 << 18
"""Tokens gathered before they are written: 4 MB of Arrow data."""

SHARD_TOKENS = 32 * 1024 * 1024
"""Tokens a file: about 500 MB, as the library cuts its own."""


def features() -> dict[str, Any]:
    """The columns as the datasets library describes them; speculators expects 64-bit integers."""
    integers = {"dtype": "int64", "_type": "Value"}
    return {"input_ids": {"feature": integers, "_type": "List"}, "loss_mask": {"feature": integers, "_type": "List"}, "seq_len": integers}


class ArrowSink:
    """Writes one split. In memory: one batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[Path, str] = {}
        self._shards: list[ExportFile] = []
        self._shard_tokens = 0
        self._batch: list[Row] = []
        self._batch_tokens = 0

    def __enter__(self) -> ArrowSink:
        import pyarrow as pa

        lists = pa.list_(pa.int64())
        self._schema = pa.schema([("input_ids", lists), ("loss_mask", lists), ("seq_len", pa.int64())])
        self._open_shard()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._write_batch()
            self._close_shard()
            self._describe()
        else:
            self._shards[-1].__exit__(kind, error, trace)

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._batch.append(row)
        self._batch_tokens += row.head.tokens
        if self._batch_tokens >= BATCH_TOKENS:
            self._write_batch()

    def _write_batch(self) -> None:
        if not self._batch:
            return
        import pyarrow as pa

        if self._shard_tokens + self._batch_tokens > SHARD_TOKENS and self._shard_tokens:
            self._close_shard()
            self._open_shard()
        self._writer.write_batch(pa.record_batch(batch_columns(self._batch), schema=self._schema))
        self._shard_tokens += self._batch_tokens
        self._batch, self._batch_tokens = [], 0

    def _open_shard(self) -> None:
        import pyarrow as pa

        shard = ExportFile(self.folder / f"shard-{len(self._shards):05d}").__enter__()
        self._shards.append(shard)
        self._writer = pa.ipc.new_stream(shard.stream, self._schema)
        self._shard_tokens = 0

    def _close_shard(self) -> None:
        self._writer.close()
        self._shards[-1].__exit__(None, None, None)

    def _describe(self) -> None:
        """Give the files their final names, which tell how many there are, and write what the library reads first."""
        names = [f"data-{number:05d}-of-{len(self._shards):05d}.arrow" for number in range(len(self._shards))]
        for shard, name in zip(self._shards, names, strict=True):
            self.hashes[shard.path.rename(self.folder / name)] = shard.sha256
        write_json(
            self.folder / "dataset_info.json", {"citation": "", "description": "", "features": features(), "homepage": "", "license": ""}
        )
        write_json(
            self.folder / "state.json",
            {
                "_data_files": [{"filename": name} for name in names],
                "_fingerprint": "draftmill",
                "_format_columns": None,
                "_format_kwargs": {},
                # speculators works on tensors and does not ask for them itself.
                "_format_type": "torch",
                "_output_all_columns": False,
                "_split": None,
            },
        )


def batch_columns(rows: list[Row]) -> list[Any]:
    """The three columns of some rows."""
    import numpy as np
    import pyarrow as pa

    lengths = np.array([row.head.tokens for row in rows], dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    ids = np.concatenate([row.ids for row in rows], dtype=np.int64)
    mask = np.ones(len(ids), dtype=np.int64)
    for start, row in zip(offsets.tolist(), rows, strict=False):
        mask[start : start + row.head.prompt_tokens] = 0
    return [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, mask), pa.array(lengths)]
