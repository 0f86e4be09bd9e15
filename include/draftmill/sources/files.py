"""Which files a local `path` means: a file, a folder, or a glob."""

from __future__ import annotations

from pathlib import Path

from draftmill.errors import PermanentError

_SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet")
_COMPRESSED = (".gz", ".zst", ".zstd")
_ABOUT_DATA = {"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"}
"""Files that describe a data set and hold no rows of it."""


def data_files(path: Path) -> list[Path]:
    """The data files that `path` means, sorted. A named file is taken whatever its name; folders are searched with all subfolders.

    PermanentError where there is nothing.
    """
    if path.is_file():
        return [path]
    found = [file for file in path.rglob("*") if _is_data(file, path)] if path.is_dir() else _globbed(path)
    if not found:
        raise PermanentError(
            f"{path}: no such file, or a folder or glob without {', '.join(_SUFFIXES)} files (also {', '.join(_COMPRESSED)})"
        )
    return sorted(found)


def _globbed(path: Path) -> list[Path]:
    parts = path.parts
    wild = next((index for index, part in enumerate(parts) if any(sign in part for sign in "*?[")), None)
    if wild is None:
        return []
    base = Path(*parts[:wild])
    matches = list(base.glob(str(Path(*parts[wild:]))))
    below = [file for match in matches if match.is_dir() for file in match.rglob("*") if _is_data(file, match)]
    return [match for match in matches if match.is_file()] + below


def _is_data(file: Path, below: Path) -> bool:
    name = file.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(below).parts)
    return not hidden and name.endswith(_SUFFIXES) and file.name not in _ABOUT_DATA and file.is_file()
