"""Sources cut into units that processes read independently of one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from draftmill.sources.hub import load_split
from draftmill.sources.readers.files import Format
from draftmill.sources.readers.json_lines import read_lines
from draftmill.sources.readers.json_values import read_values
from draftmill.sources.readers.parquet import read_parquet, row_groups
from draftmill.spec.dataset import Source

LINES_UNIT_BYTES = 32 << 20
_PARQUET_UNIT_ROWS = 100_000


@dataclass(frozen=True)
class Unit:
    """A part of one source. `start` and `end` are bytes (lines), row groups (parquet), or shard and number of shards (datasets)."""

    source: int
    path: str
    format: Format | Literal["datasets"]
    start: int = 0
    end: int = 0
    hub: Source | None = None
    commit: str | None = None

    @property
    def label(self) -> str:
        """The unit's file, or data set and shard, for people."""
        return f"{self.path} (shard {self.start})" if self.format == "datasets" else self.path


def units_of_file(source: int, path: str, form: Format, size: int, splittable: bool) -> list[Unit]:
    """The units of one file of `size` bytes. Only what is not compressed can be entered in the middle."""
    if form == "parquet":
        return list(_row_group_units(source, path))
    if form == "lines" and splittable:
        starts = range(0, max(size, 1), LINES_UNIT_BYTES)
        return [Unit(source, path, form, start, min(start + LINES_UNIT_BYTES, size)) for start in starts]
    return [Unit(source, path, form)]


def _row_group_units(source: int, path: str) -> Iterator[Unit]:
    _, rows = row_groups(path)
    start, held = 0, 0
    for index, count in enumerate(rows):
        held += count
        if held >= _PARQUET_UNIT_ROWS or index == len(rows) - 1:
            yield Unit(source, path, "parquet", start, index + 1)
            start, held = index + 1, 0


def units_of_split(source: int, spec: Source, commit: str | None, shards: int) -> list[Unit]:
    """The units of a hub data set that only the `datasets` library can read."""
    return [Unit(source, f"{spec.hub} {spec.split}", "datasets", index, shards, spec, commit) for index in range(shards)]


def read_unit(unit: Unit, columns: tuple[str, ...]) -> Iterator[Any]:
    """The unit's rows: plain values, and DAMAGED for what cannot be read. Only Parquet leaves columns out."""
    if unit.format == "parquet":
        return read_parquet(unit.path, columns, unit.start, unit.end)
    if unit.format == "lines":
        return read_lines(unit.path, unit.start, unit.end or None)
    if unit.format == "values":
        return read_values(unit.path)
    return _read_split(unit)


def _read_split(unit: Unit) -> Iterator[Any]:
    assert unit.hub is not None, "a unit of the datasets library names its hub source"
    split = load_split(unit.hub, unit.commit)
    return iter(split if unit.end == 1 else split.shard(num_shards=unit.end, index=unit.start))


def columns_of(unit: Unit) -> list[str] | None:
    """The unit's columns, where its file says them without reading rows."""
    return row_groups(unit.path)[0] if unit.format == "parquet" else None
