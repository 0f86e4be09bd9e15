from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftmill.serving.pagecache import cached_fraction


def test_what_was_written_is_in_the_cache_until_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(70 << 20))
    assert cached_fraction([path]) == pytest.approx(1.0, abs=0.05)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    dropped = cached_fraction([path])
    if dropped == pytest.approx(1.0, abs=0.05):
        pytest.skip("the file system of this host keeps all files in memory")
    assert dropped == pytest.approx(0.0, abs=0.1)
    assert path.read_bytes()[:1]


def test_nothing_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_fraction([]) is None
    assert cached_fraction([tmp_path / "empty"]) is None
