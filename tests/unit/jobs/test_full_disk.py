"""A disk that is really full: a small file system in memory, which only root can mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.errors import ExitCode
from draftmill.jobs import transport
from tests.unit.jobs.conftest import Host, eventually


@pytest.fixture
def small(host: Host) -> Iterator[Path]:
    """The workspace on a file system of 512 KiB."""
    root = host.workspace.root
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(root)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield root
    host.process("nap").stop(1)
    subprocess.run(["umount", str(root)], check=True)


def fill(root: Path) -> Path:
    path = root / "ballast"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 512)
    assert os.statvfs(root).f_bavail == 0
    return path


def test_a_start_on_a_full_disk_is_a_temporary_failure(host: Host, small: Path) -> None:
    ballast = fill(small)
    code, answer = transport.answer("start", host.start_request("nap").model_dump_json().encode())
    assert code == ExitCode.TEMPORARY
    assert b"the disk is full" in answer
    ballast.unlink()
    assert host.start("nap").state == "running"


def test_a_job_lives_through_a_full_disk_and_tells_how_it_ended(host: Host, small: Path) -> None:
    host.start("nap")
    eventually(lambda: host.status("nap").progress)
    beat = host.status("nap").heartbeat_at
    ballast = fill(small)
    assert host.status("nap").state == "running"
    ballast.unlink()
    eventually(lambda: host.status("nap").heartbeat_at != beat)
    assert host.stop("nap").state == "stopped"


def test_a_job_that_cannot_leave_its_result_is_lost_and_can_start_again(host: Host, small: Path) -> None:
    host.start("nap")
    eventually(lambda: host.status("nap").progress)
    ballast = fill(small)
    assert host.stop("nap", grace_s=30).state == "lost"
    ballast.unlink()
    again = host.start("nap")
    assert (again.state, again.attempt) == ("running", 2)
