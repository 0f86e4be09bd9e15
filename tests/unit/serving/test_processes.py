from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.jobs.proc import boot_id, read_stat
from draftmill.serving.folder import ProcessRecord, ServerFolder, ServerState
from draftmill.serving.ground import end_leftovers, leftovers
from draftmill.serving.processes import MARK, ServerMembers, name_process
from draftmill.serving.verify import remains

OURS, THEIRS = secrets.token_hex(8), secrets.token_hex(8)
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def folder(tmp_path: Path) -> ServerFolder:
    folder = ServerFolder(tmp_path / "server")
    folder.logs.mkdir(parents=True)
    return folder


@pytest.fixture
def start(folder: ServerFolder) -> Iterator[object]:
    running: list[subprocess.Popen[bytes]] = []

    def run(env: dict[str, str] | None = None, *, into_log: bool = False) -> subprocess.Popen[bytes]:
        log = folder.log(1).open("ab") if into_log else None
        process = subprocess.Popen(SLEEP, env={**os.environ, **(env or {})}, stdout=log or subprocess.DEVNULL, start_new_session=True)
        if log:
            log.close()
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.wait()


def record(pid: int) -> ProcessRecord:
    stat = read_stat(pid)
    assert stat is not None
    return ProcessRecord(pid=pid, start_ticks=stat.start_ticks)


def test_ours_are_found_by_mark_by_output_and_by_record(folder: ServerFolder, start: object) -> None:
    marked, logging, recorded, foreign = start({MARK: OURS}), start(into_log=True), start(), start({MARK: THEIRS})  # type: ignore[operator]
    state = ServerState(mark=OURS, boot_id=boot_id(), processes=[record(recorded.pid)])
    assert sorted(leftovers(state, folder)) == sorted([marked.pid, logging.pid, recorded.pid])
    end_leftovers(state, folder)
    for process in (marked, logging, recorded):
        assert process.wait(5) == -9
    assert foreign.poll() is None
    assert remains(state, folder, []) == []


def test_a_pid_given_out_again_is_not_ours(folder: ServerFolder, start: object) -> None:
    other = start()  # type: ignore[operator]
    stale = ProcessRecord(pid=other.pid, start_ticks=record(other.pid).start_ticks - 1)
    assert leftovers(ServerState(mark=OURS, boot_id=boot_id(), processes=[stale], leader=stale), folder) == []


def test_records_from_before_a_reboot_mean_nothing(folder: ServerFolder, start: object) -> None:
    other = start()  # type: ignore[operator]
    state = ServerState(mark=OURS, boot_id="another", processes=[record(other.pid)], leader=record(other.pid))
    assert leftovers(state, folder) == []


def test_a_lost_state_still_finds_what_writes_into_our_logs(folder: ServerFolder, start: object) -> None:
    logging, plain = start(into_log=True), start({MARK: ""})  # type: ignore[operator]
    assert leftovers(ServerState(), folder) == [logging.pid]
    folder.log(1).unlink()
    assert leftovers(ServerState(), folder) == [logging.pid]
    assert plain.poll() is None


def test_a_reader_of_the_log_is_not_ours(folder: ServerFolder) -> None:
    folder.log(1).write_text("x\n")
    with subprocess.Popen(["tail", "-f", str(folder.log(1))], stdout=subprocess.DEVNULL) as reader:
        assert leftovers(ServerState(), folder) == []
        reader.kill()


def test_members_are_recorded(folder: ServerFolder, start: object) -> None:
    marked = start({MARK: OURS})  # type: ignore[operator]
    assert ServerMembers(OURS, folder.logs, None).records() == [record(marked.pid)]


def test_a_process_is_named_for_people() -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        assert re.fullmatch(rf"pid {other.pid} of \S+ \(\S*python\S* -c import time; .*\)", name_process(other.pid))
        other.kill()
    assert name_process(2**22 + 1) == f"pid {2**22 + 1}"
