"""Versions of the corpus: a new one is built beside the old one and takes its place in one step.

`corpus` is a symbolic link into `corpora/`; replacing a link is atomic on every file system, and whoever opened the old version reads on
in it. The version before the current one is kept, older ones are removed.

```
CAMPAIGN/corpus -> corpora/3f2a...     what readers open
CAMPAIGN/corpora/3f2a.../              named by the hash of its manifest
CAMPAIGN/corpora/.building-.../        left by a merge that was killed; removed by the next one
```
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from draftmill.errors import PermanentError
from draftmill.files import fsync_directory
from draftmill.layout import CampaignFolder

_BUILDING = ".building-"
NAME_LENGTH = 16


class Versions:
    """The versions of one campaign's corpus. Only the holder of the merge lock may build or publish."""

    def __init__(self, folder: CampaignFolder) -> None:
        self.link = folder.corpus
        self.root = folder.root / "corpora"

    @property
    def lock(self) -> Path:
        """Held by the one merge of the campaign."""
        return self.root / ".lock"

    def current(self) -> Path | None:
        """The folder of the current version, or None before the first."""
        if self.link.exists() and not self.link.is_symlink():
            raise PermanentError(f"{self.link}: is not the link that draftmill makes there; move it away and merge again")
        return self.link.resolve() if self.link.exists() else None

    @contextlib.contextmanager
    def building(self) -> Iterator[Path]:
        """An empty folder to build in. It disappears when the block ends without `publish`, and so do those of killed merges."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(f"{_BUILDING}*"):
            shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self.root))
        folder.chmod(0o755)
        try:
            yield folder
        finally:
            if folder.exists():
                shutil.rmtree(folder)

    def publish(self, folder: Path, manifest_sha256: str) -> Path:
        """Make `folder` the current version and return its final path. Durable before anybody can see it."""
        before = self.current()
        sync_tree(folder)
        final = self._free_name(manifest_sha256[:NAME_LENGTH])
        folder.rename(final)
        fsync_directory(self.root)
        self._point_to(final)
        self._remove_all_but(final, before)
        return final

    def _free_name(self, name: str) -> Path:
        """A name that is not taken: a damaged version may have the same manifest as the one that replaces it."""
        candidates = (self.root / (f"{name}-{number}" if number else name) for number in count())
        return next(path for path in candidates if not path.exists())

    def _point_to(self, final: Path) -> None:
        fresh = self.root / ".link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(self.root.name) / final.name)
        fresh.replace(self.link)
        fsync_directory(self.link.parent)

    def _remove_all_but(self, *kept: Path | None) -> None:
        names = {path.name for path in kept if path}
        for path in self.root.iterdir():
            if path.is_dir() and path.name not in names:
                shutil.rmtree(path)


def sync_tree(folder: Path) -> None:
    """Make all files below `folder`, and their names, durable."""
    for parent, _, files in os.walk(folder):
        sync_files(Path(parent) / name for name in files)
        fsync_directory(Path(parent))


def sync_files(paths: Iterable[Path]) -> None:
    """Make the contents of files durable."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
