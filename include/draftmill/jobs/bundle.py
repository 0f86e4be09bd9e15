"""draftmill as one file: a zipapp named by the hash of what is in it.

The same sources give the same bytes on any machine: names are sorted, times are fixed and nothing is compressed (zlib's output differs
between its builds, and uncompressed code is imported faster). The hash is of names and contents, so code run from its folder has the
same hash as its zipapp.
"""

from __future__ import annotations

import hashlib
import zipfile
from functools import lru_cache
from pathlib import Path

from draftmill.files import atomic_writer
from draftmill.jobs.detached import code_root

PACKAGE = "draftmill"
_ENTRY = b"import sys\n\nfrom draftmill.cli import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_HASH_CHARACTERS = 16


def _wanted(name: str) -> bool:
    parts = name.split("/")
    return (
        parts[0] == PACKAGE and "__pycache__" not in parts and not any(part.startswith(".") for part in parts) and not name.endswith(".pyc")
    )


def read_sources(root: Path) -> dict[str, bytes]:
    """All files of the package below `root`, a folder or a zipapp, by their path from there, sorted."""
    if root.is_file():
        with zipfile.ZipFile(root) as archive:
            found = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/") and _wanted(name)}
    else:
        names = {path.relative_to(root).as_posix(): path for path in (root / PACKAGE).rglob("*") if path.is_file()}
        found = {name: path.read_bytes() for name, path in names.items() if _wanted(name)}
    return dict(sorted(found.items()))


def hash_sources(sources: dict[str, bytes]) -> str:
    """Hex SHA-256 over names and contents, each with its length before it, so that no two sets of files look alike."""
    digest = hashlib.sha256()
    for name, content in sorted({**sources, "__main__.py": _ENTRY}.items()):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def code_hash() -> str:
    """The hash of the code that is running."""
    return hash_sources(read_sources(code_root()))


def build(folder: Path, root: Path | None = None) -> Path:
    """Write the zipapp of the package below `root` (the running code by default) into `folder`; one that is there already is kept."""
    sources = read_sources(root or code_root())
    path = folder / f"{PACKAGE}-{hash_sources(sources)[:_HASH_CHARACTERS]}.pyz"
    if path.exists():
        return path
    with atomic_writer(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({**sources, "__main__.py": _ENTRY}.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return path
