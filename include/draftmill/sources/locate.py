"""From `sources` of a plan to what they are now (their identity) and to the units that are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.errors import PermanentError
from draftmill.sources.files import data_files
from draftmill.sources.hub import commit_of, find_hub_files
from draftmill.sources.readers.files import is_remote, size_of, sniff
from draftmill.sources.units import Unit, units_of_file, units_of_split
from draftmill.spec.dataset import Source

Resolve = Callable[[str], Path]
"""Gives a path of a configuration file its place: `Workspace.resolve`."""


@dataclass(frozen=True)
class Located:
    """A source found; nothing of it is read yet.

    identity: JSON that changes when the data does. about: what reports and manifests say of it. files: of a local source.
    size: bytes of a local source, None where they are not known.
    """

    source: Source
    identity: list[Any]
    about: dict[str, Any]
    files: tuple[str, ...] = ()
    size: int | None = None
    commit: str | None = None


def locate(source: Source, resolve: Resolve, recorded: list[dict[str, Any]] | None = None) -> Located:
    """Find a source. `recorded` is what `about` said before: it has the commit where the hub is out of reach now.

    Raises PermanentError where there is no such file, data set or revision.
    """
    if source.hub is not None:
        return _locate_hub(source, recorded or [])
    files = tuple(str(file) for file in data_files(resolve(source.path or "")))
    stats = [Path(file).stat() for file in files]
    size = sum(stat.st_size for stat in stats)
    identity = [[file, stat.st_size, stat.st_mtime_ns] for file, stat in zip(files, stats, strict=True)]
    return Located(source, identity, {"path": source.path, "files": len(files), "bytes": size}, files, size)


def _locate_hub(source: Source, recorded: list[dict[str, Any]]) -> Located:
    about = source.model_dump(include={"hub", "subset", "split", "revision"})
    commit = commit_of(source)
    if commit is None:
        commit = next((old.get("commit") for old in recorded if {**old, **about} == old), None)
    identity = [about["hub"], about["subset"], about["split"], commit]
    return Located(source, identity, {**about, "commit": commit}, commit=commit)


def units_of(index: int, located: Located) -> list[Unit]:
    """The units of source number `index`. PermanentError where a file is neither JSON, JSONL nor Parquet, or the source is empty."""
    files, shards = located.files, 0
    if located.source.hub is not None:
        found = find_hub_files(located.source, located.commit)
        files, shards = found.files, found.shards
    if shards:
        return units_of_split(index, located.source, located.commit, shards)
    units: list[Unit] = []
    for file in files:
        form, compressed = sniff(file)
        splittable = compressed is None and not is_remote(file)
        units += units_of_file(index, file, form, size_of(file) if splittable else 0, splittable)
    if not units:
        raise PermanentError(f"sources: {located.about} has no rows")
    return units
