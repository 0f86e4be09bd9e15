from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from draftmill.jobs.proc import ProcessStat, read_stat
from draftmill.serving import progress
from draftmill.serving.progress import LoadProgress, LogFollower, mentions_batch


def me() -> list[ProcessStat]:
    stat = read_stat(os.getpid())
    assert stat is not None
    return [stat]


def test_a_log_is_followed_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log)
    assert follower.new_lines() == []
    with log.open("wb", buffering=0) as stream:
        stream.write(b"one\ntw")
        assert follower.new_lines() == [b"one"]
        stream.write(b"o\n\n 50%|\r 60%|\r")
        assert follower.new_lines() == [b"two", b" 50%|", b" 60%|"]
        assert follower.new_lines() == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_what_counts_as_progress(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    resident = [100 << 20]
    monkeypatch.setattr(progress, "_resident_bytes", lambda pid: resident[0])
    monkeypatch.setattr(progress, "_read_bytes", lambda pid: 0)
    watch = LoadProgress()

    def moves(lines: list[bytes], gpu: int = 0, members: list[ProcessStat] | None = None) -> bool:
        clock[0] += 10
        watch.look(members or me(), lines, gpu)
        return watch.still_s == 0

    assert moves([])  # a process that was not there before
    assert not moves([])
    assert moves([b"Load weight begin"])
    assert not moves([b'INFO:     127.0.0.1:1 - "GET /model_info HTTP/1.1" 503'])  # our own question
    assert moves([], gpu=1 << 30)
    assert not moves([], gpu=(1 << 30) + 1)
    assert not moves([], gpu=0)
    resident[0] += 65 << 20
    assert moves([])
    resident[0] -= 65 << 20
    assert not moves([])
    resident[0] += 65 << 20
    assert not moves([])  # back where it was
    with subprocess.Popen(["sleep", "60"]) as compiler:
        stat = read_stat(compiler.pid)
        assert stat is not None
        assert moves([], members=[*me(), stat])
        compiler.kill()
    assert watch.still_s == 0


def test_disk_reads_count(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    read = [0]
    monkeypatch.setattr(progress, "_read_bytes", lambda pid: read[0])
    monkeypatch.setattr(progress, "_resident_bytes", lambda pid: 0)
    watch = LoadProgress()
    watch.look(me(), [], 0)
    clock[0] += 10
    read[0] = 2 << 20
    watch.look(me(), [], 0)
    assert watch.still_s == 0
    clock[0] += 10
    watch.look(me(), [], 0)
    assert watch.still_s == 10


def test_the_kernel_tells_of_this_process() -> None:
    assert progress._resident_bytes(os.getpid()) > 1 << 20
    assert progress._read_bytes(os.getpid()) >= 0
    assert progress._resident_bytes(2**22 + 1) == 0
    assert progress._read_bytes(2**22 + 1) == 0


def test_batches_are_seen_in_the_log() -> None:
    assert mentions_batch([b"x", b"[2026-01-29 01:16:09 TP0] Decode batch, #running-req: 8, #token: 1637"])
    assert mentions_batch([b"[2026-01-29 01:16:09 TP0] Prefill batch, #new-seq: 1"])
    assert not mentions_batch([b"INFO: GET /health"])
