from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from draftmill.jobs.logtail import read_piece
from draftmill.jobs.spill import trim_log

LINE = b"%031d\n" % 7


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.1"
    path.write_bytes(LINE * (4 << 20 >> 5))
    with path.open("r+b") as stream:
        os.fsync(stream.fileno())
    return path


def test_a_log_below_its_limit_is_left_alone(log: Path) -> None:
    assert not trim_log(log, limit=8 << 20, kept=1 << 20)
    assert log.read_bytes() == LINE * (4 << 20 >> 5)


def test_the_head_of_an_overlong_log_gives_its_space_back(log: Path) -> None:
    size, before = log.stat().st_size, log.stat().st_blocks
    if not trim_log(log, limit=2 << 20, kept=1 << 20):
        pytest.skip(f"this file system cannot free a part of a file ({errno.errorcode[errno.EOPNOTSUPP]})")
    assert log.stat().st_size == size
    assert log.stat().st_blocks < before // 2
    kept = size - (1 << 20) + len(LINE)  # the line before has lost its end
    assert read_piece(log, kept, 1 << 20, over=True).text == LINE.decode() * ((1 << 20 >> 5) - 1)


def test_writing_goes_on_at_the_end(log: Path) -> None:
    with log.open("ab") as stream:
        trim_log(log, limit=2 << 20, kept=1 << 20)
        stream.write(b"more\n")
    size = log.stat().st_size
    assert size == (4 << 20) + 5
    assert read_piece(log, size - 5, 1024, over=True).text == "more\n"
