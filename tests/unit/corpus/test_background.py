"""Writing and hashing in the background: everything arrives, and errors come back."""

from __future__ import annotations

import errno
import hashlib
import io
import threading
from pathlib import Path
from typing import IO

import pytest

from draftmill.corpus import background
from draftmill.corpus.background import HashedWriter


@pytest.mark.parametrize("piece", [1, 100, 10**9])
def test_all_bytes_arrive_in_order(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(background, "PIECE_BYTES", piece)
    stream = io.BytesIO()
    with HashedWriter(stream) as writer:
        for number in range(500):
            writer.write(b"%d," % number)
            writer.write(memoryview(b"view "))
            writer.write(b"x" * (background.LARGE_BYTES if number % 100 == 0 else 3))
    fillers = [b"x" * (background.LARGE_BYTES if number % 100 == 0 else 3) for number in range(500)]
    expected = b"".join(b"%d,view %s" % (number, fillers[number]) for number in range(500))
    assert stream.getvalue() == expected
    assert writer.size == len(expected)
    assert writer.sha256 == hashlib.sha256(expected).hexdigest()


def write_many(stream: IO[bytes], count: int) -> int:
    """How many of `count` pieces could be written before an error came back, which is raised after telling."""
    with HashedWriter(stream) as writer:
        for _ in range(count):
            writer.write(b"0123456789")
    return writer.size


def test_a_full_disk_is_told_to_the_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full is a real device whose every write fails for lack of space."""
    monkeypatch.setattr(background, "PIECE_BYTES", 10)
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space") as raised:
        write_many(full, 1_000_000)
    assert raised.value.errno == errno.ENOSPC


def test_a_full_disk_is_told_at_the_end_at_the_latest() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space"):
        write_many(full, 1)


def write_and_fail() -> None:
    with HashedWriter(io.BytesIO()) as writer:
        writer.write(b"x" * (background.PIECE_BYTES * 10))
        raise ZeroDivisionError


def test_an_error_of_the_maker_ends_the_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert threading.active_count() == before
