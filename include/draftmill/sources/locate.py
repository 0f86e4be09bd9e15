"""From `sources` of a plan to units to read, with a fingerprint that changes when the data does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.errors import PermanentError
from draftmill.sources.files import data_files
from draftmill.sources.hub import find_hub_files
from draftmill.sources.readers.files import is_remote, size_of, sniff
from draftmill.sources.units import Unit, units_of_file, units_of_split
from draftmill.spec.dataset import Source


@dataclass(frozen=True)
class Located:
    """A source found. `identity` is JSON that changes when the data does; `about` is what a manifest says of it."""

    source: Source
    files: tuple[str, ...]
    identity: list[Any]
    about: dict[str, Any]
    shards: int = 0
    commit: str | None = None


def locate(source: Source, resolve: Callable[[str], Path]) -> Located:
    """Find a source's files; nothing of them is read. `resolve` gives a configured path its place in the workspace.

    Raises PermanentError or TemporaryError, as `data_files` and `find_hub_files` do.
    """
    if source.hub is not None:
        found = find_hub_files(source)
        about: dict[str, Any] = {
            "hub": source.hub,
            "subset": source.subset,
            "split": source.split,
            "revision": source.revision,
            "commit": found.commit,
        }
        identity = [source.hub, source.subset, source.split, found.commit, *(_stamp(file) for file in found.files)]
        return Located(source, found.files, identity, about, found.shards, found.commit)
    path = resolve(source.path or "")
    files = tuple(str(file) for file in data_files(path))
    about = {"path": source.path, "files": len(files), "bytes": sum(Path(file).stat().st_size for file in files)}
    return Located(source, files, [_stamp(file) for file in files], about)


def _stamp(file: str) -> list[Any]:
    """A file's name, size and time of change; a URL of the hub holds the commit and says it all."""
    if is_remote(file):
        return [file]
    stat = Path(file).stat()
    return [file, stat.st_size, stat.st_mtime_ns]


def units_of(index: int, located: Located) -> list[Unit]:
    """The units of a located source. PermanentError where a file is neither JSON, JSONL nor Parquet."""
    if located.shards:
        return units_of_split(index, located.source, located.commit, located.shards)
    units: list[Unit] = []
    for file in located.files:
        form, compressed = sniff(file)
        splittable = compressed is None and not is_remote(file)
        units += units_of_file(index, file, form, size_of(file) if splittable else 0, splittable)
    if not units:
        raise PermanentError(f"sources: {located.about} has no rows")
    return units
