"""A disk that can be full: a small file system where one can be mounted, a limit on the size of files elsewhere."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from pathlib import Path
from typing import IO

import pytest

SIZE = "2m"


class Disk:
    """The folder `root`. `mounted`: it is a file system of its own, of SIZE; otherwise `full` limits the files of one process."""

    def __init__(self, root: Path, small: bool) -> None:
        self.root = root
        self.full = False
        root.mkdir()
        self.mounted = small and _mount(root)
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """Leave no space."""
        self.full = True
        if not self.mounted:
            return
        with self._ballast.open("ab", buffering=0) as ballast, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            _write_for_ever(ballast)

    def free(self, pid: int | None) -> None:
        """Give the space back, and the process `pid` its freedom."""
        self.full = False
        if self.mounted:
            self._ballast.unlink(missing_ok=True)
        elif pid is not None:
            self._limit(pid, resource.RLIM_INFINITY)

    def bind(self, pid: int, size: int) -> None:
        """Where there is no small disk: the files of `pid` may not grow beyond `size` bytes."""
        if not self.mounted:
            self._limit(pid, size)

    @staticmethod
    def _limit(pid: int, size: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def close(self) -> None:
        """Unmount what was mounted."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.root)], check=True)


def _write_for_ever(stream: IO[bytes]) -> None:
    while True:
        stream.write(bytes(4_096))


def _mount(root: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(root)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
