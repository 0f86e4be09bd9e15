"""Parquet: plain Python rows, only the columns that are used, shares of row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftmill.errors import PermanentError
from draftmill.sources.readers.json_lines import DAMAGED
from draftmill.sources.readers.parquet import read_parquet, row_groups
from draftmill.sources.units import units_of_file


def write(path: Path, rows: list[dict[str, Any]], group: int = 3) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return str(path)


def test_rows_are_plain_python(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "a", "tool_calls": None}], "score": 1.5, "id": "0012"}]
    (row,) = read_parquet(write(tmp_path / "a.parquet", rows), ("messages", "id"), 0, 1)
    assert row == {"messages": [{"role": "user", "content": "a", "tool_calls": None}], "id": "0012"}
    assert type(row["messages"]) is list
    assert type(row["messages"][0]) is dict


def test_columns_and_row_groups_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"a": number, "b": "x"} for number in range(7)])
    assert row_groups(path) == (["a", "b"], [3, 3, 1])


def test_units_share_out_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.sources.units._PARQUET_UNIT_ROWS", 4)
    path = write(tmp_path / "a.parquet", [{"a": number} for number in range(20)])
    units = units_of_file(0, path, "parquet", 0, splittable=True)
    assert len(units) > 2
    assert [row["a"] for unit in units for row in read_parquet(path, ("a",), unit.start, unit.end)] == list(range(20))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, [{"a": number} for number in range(100)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PermanentError, match=r"a\.parquet: is no whole Parquet file"):
        row_groups(str(path))


def test_a_row_that_python_cannot_hold_spoils_no_other(tmp_path: Path) -> None:
    texts = pa.array([b"one", b"caf\xe9", b"three", b"four"], pa.binary()).view(pa.string())
    dates = pa.array([0, 0, 0, 10**18], pa.int64()).view(pa.timestamp("us"))
    pq.write_table(pa.table({"text": texts, "date": dates}), tmp_path / "a.parquet")
    read = [row if row is DAMAGED else row["text"] for row in read_parquet(str(tmp_path / "a.parquet"), ("text", "date"), 0, 1)]
    assert read == ["one", DAMAGED, "three", DAMAGED]
