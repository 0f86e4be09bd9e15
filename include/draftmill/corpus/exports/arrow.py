"""Training rows as an Arrow data set, as `Dataset.save_to_disk` lays it out: read by `datasets.load_from_disk` and by speculators.

Written here batch by batch: the library's own way goes through a second copy of all rows in its cache. The layout is that of datasets
2.x to 5.x: Arrow streams `data-NNNNN-of-NNNNN.arrow`, `dataset_info.json` with the features, `state.json` with the files and the format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.corpus.exports.sink import Row
from draftmill.files import write_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLUMNS = ("input_ids", "loss_mask", "seq_len")

BATCH_TOKENS = 1 << 19
"""Tokens gathered before they are written: 8 MB of Arrow data."""

SHARD_TOKENS = 32 * 1024 * 1024
"""Tokens a file: about 500 MB, as the library cuts its own."""


def features() -> dict[str, Any]:
    """The columns as the datasets library describes them; speculators expects 64-bit integers."""
    integers = {"dtype": "int64", "_type": "Value"}
    return {"input_ids": {"feature": integers, "_type": "List"}, "loss_mask": {"feature": integers, "_type": "List"}, "seq_len": integers}


class ArrowSink:
    """Writes one split. In memory: one batch."""

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa

        self.folder = folder
        folder.mkdir(parents=True)
        lists = pa.list_(pa.int64())
        self.schema = pa.schema([("input_ids", lists), ("loss_mask", lists), ("seq_len", pa.int64())])
        self._shards: list[Path] = []
        self._writer: Any = None
        self._shard_tokens = 0
        self._batch: list[NDArray[np.int32]] = []
        self._prompt_lengths: list[int] = []
        self._batch_tokens = 0

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._batch.append(row.ids)
        self._prompt_lengths.append(row.head.prompt_tokens)
        self._batch_tokens += len(row.ids)
        if self._batch_tokens >= BATCH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        import numpy as np
        import pyarrow as pa

        lengths = np.array([len(ids) for ids in self._batch], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids = np.concatenate(self._batch).astype(np.int64)
        mask = np.ones(len(ids), dtype=np.int64)
        for start, prompt_length in zip(offsets, self._prompt_lengths, strict=False):
            mask[start : start + prompt_length] = 0
        columns = [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, mask), pa.array(lengths)]
        if self._writer is None or self._shard_tokens + len(ids) > SHARD_TOKENS:
            self._open_shard()
        self._writer.write_batch(pa.record_batch(columns, schema=self.schema))
        self._shard_tokens += len(ids)
        self._batch, self._prompt_lengths, self._batch_tokens = [], [], 0

    def _open_shard(self) -> None:
        import pyarrow as pa

        self._close_shard()
        path = self.folder / f"shard-{len(self._shards):05d}"
        self._writer = pa.ipc.new_stream(str(path), self.schema)
        self._shards.append(path)
        self._shard_tokens = 0

    def _close_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        """Write what is left, give the files their final names and describe them."""
        self._flush()
        self._close_shard()
        names = [f"data-{number:05d}-of-{len(self._shards):05d}.arrow" for number in range(len(self._shards))]
        for path, name in zip(self._shards, names, strict=True):
            path.rename(self.folder / name)
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
