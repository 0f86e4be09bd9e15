"""JSONL files: one, or shards; plain, or compressed."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from draftmill.corpus.checks.read import lines
from draftmill.corpus.exports.jsonl import JsonlSink, split_path
from draftmill.files import sha256_file
from tests.unit.corpus.test_record import make_row

ROWS = [make_row([1] * n, [2, 3], id=f"{n:032d}") for n in range(10)]
LINES = [b"".join(row.line()) for row in ROWS]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("shard_rows", "sizes"), [(0, [10]), (4, [4, 4, 2]), (5, [5, 5]), (20, [10])])
def test_files_hold_the_lines(tmp_path: Path, shard_rows: int, sizes: list[int], compress: bool) -> None:
    with JsonlSink(tmp_path, "train", shard_rows, compress) as sink:
        for row in ROWS:
            sink.add(row)
    where = split_path(tmp_path, "train", shard_rows, compress)
    files = sorted(where.iterdir()) if shard_rows else [where]
    contents = [b"".join(lines(path)) for path in files]
    if compress:
        assert b"".join(path.read_bytes() for path in files).startswith(zstandard.FRAME_HEADER)
    assert b"".join(contents) == b"".join(LINES)
    assert [content.count(b"\n") for content in contents] == sizes
    assert sink.hashes == {path: sha256_file(path) for path in files}
