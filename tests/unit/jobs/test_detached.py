from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from draftmill.errors import TemporaryError
from draftmill.files import FileLock, read_json, write_json
from draftmill.jobs.detached import DetachedProcess, code_root
from draftmill.jobs.proc import boot_id, living_processes, read_stat
from tests.unit.jobs.conftest import eventually, marked
from tests.unit.jobs.steps_program import DEAF

SLEEP = [sys.executable, "-c", "import time; print('awake', flush=True); time.sleep(600)"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[DetachedProcess]:
    process = DetachedProcess(tmp_path / "job")
    yield process
    assert process.stop(0.5) == []


def change_identity(process: DetachedProcess, **changes: object) -> None:
    write_json(process.folder / "process.json", read_json(process.folder / "process.json") | changes)


def test_start_returns_a_process_of_its_own_session(process: DetachedProcess) -> None:
    assert process.start(SLEEP, {"what": "sleep"})
    identity = process.identity()
    assert identity is not None
    stat = read_stat(identity.pid)
    assert stat is not None
    assert (stat.session, stat.pgid) == (identity.pid, identity.pid)
    assert stat.session != os.getsid(0)
    assert stat.ppid != os.getpid(), "it would become a zombie of ours"
    assert identity.spec == {"what": "sleep"}
    assert process.alive()


def test_it_holds_no_descriptor_of_its_starter_but_the_lock(process: DetachedProcess, tmp_path: Path) -> None:
    process.start(SLEEP, {})
    eventually(lambda: process.log.read_text() == "awake\n")
    links = {path.name: str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert links.pop("0") == "/dev/null"
    assert links.pop("1") == links.pop("2") == str(process.log)
    assert list(links.values()) == [str(process.folder / "life.lock")]


def test_log_is_for_the_user_alone(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    assert process.log.stat().st_mode & 0o777 == 0o600


def test_a_running_process_is_not_started_again(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    pid = process.pid
    assert not process.start(SLEEP, {})
    assert process.pid == pid
    assert marked(process.folder) == [pid]


def test_signals_blocked_or_ignored_by_the_starter_reach_it(process: DetachedProcess) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process.start(SLEEP, {})
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        signal.signal(signal.SIGTERM, before)
    began = time.monotonic()
    assert process.stop(30) == []
    assert time.monotonic() - began < 10


def test_a_command_that_does_not_exist_is_named(process: DetachedProcess) -> None:
    with pytest.raises(TemporaryError, match=r"/no/such/python.*No such file"):
        process.start(["/no/such/python"], {})
    assert not process.alive()
    assert process.start(SLEEP, {}), "the failed attempt must not block the next"


def test_a_killed_process_is_dead_at_once(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not process.alive(), timeout_s=1)


def test_a_zombie_is_not_alive(process: DetachedProcess) -> None:
    with subprocess.Popen(["true"]) as child:
        stat = eventually(lambda: (stat := read_stat(child.pid)) and stat.dead and stat)
        identity = {"pid": child.pid, "pgid": child.pid, "start_ticks": stat.start_ticks, "boot_id": boot_id()}
        write_json(process.folder / "process.json", identity | {"started_at": 0.0, "attempt": 1, "spec": {}})
        assert not process.alive()


@pytest.mark.parametrize("changes", [{"start_ticks": 1}, {"boot_id": "another"}], ids=["pid given out again", "rebooted"])
def test_a_foreign_process_with_its_pid_is_neither_it_nor_touched(process: DetachedProcess, changes: dict[str, object]) -> None:
    process.start(SLEEP, {})
    # A process without the mark, as any other user's program would be.
    with subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL, start_new_session=True) as foreign:
        stat = read_stat(foreign.pid)
        assert stat is not None
        process.stop(1)
        change_identity(process, pid=foreign.pid, pgid=foreign.pid, start_ticks=stat.start_ticks)
        assert process.alive()
        change_identity(process, **changes)
        assert not process.alive()
        assert process.stop(0.2) == []
        assert foreign.poll() is None
        foreign.kill()


def test_each_attempt_has_its_log_and_the_last_five_are_kept(process: DetachedProcess) -> None:
    for number in range(1, 8):
        process.start([sys.executable, "-c", f"print('attempt {number}')"], {})
        eventually(lambda: not process.alive())
        assert process.log.name == f"log.{number}"
        assert process.log.read_text() == f"attempt {number}\n"
    assert sorted(path.name for path in process.folder.glob("log.*")) == [f"log.{number}" for number in range(3, 8)]


def test_a_new_attempt_begins_without_heartbeat_and_result(process: DetachedProcess) -> None:
    process.start(["true"], {})
    eventually(lambda: not process.alive())
    write_json(process.heartbeat_path, {"at": 1})
    write_json(process.result_path, {"exit_code": 0})
    process.start(SLEEP, {})
    state = process.read_state()
    assert state.alive
    assert state.heartbeat is None
    assert state.result is None


def test_stop_ends_children_that_ignore_term(process: DetachedProcess, tmp_path: Path) -> None:
    """One hides in a session of its own, one has no environment, one outlived its parent."""
    program = f"""
import os, subprocess, sys
quiet = dict(stdout=subprocess.PIPE)
subprocess.Popen([sys.executable, '-c', {DEAF!r}], start_new_session=True, **quiet).stdout.readline()
subprocess.Popen([sys.executable, '-c', {DEAF!r}], env={{}}, **quiet).stdout.readline()
if os.fork() == 0:
    subprocess.Popen([sys.executable, '-c', {DEAF!r}], **quiet).stdout.readline()
    os._exit(0)
os.wait()
print('ready', flush=True)
os.wait()
"""
    process.start([sys.executable, "-c", program], {})
    eventually(lambda: "ready" in process.log.read_text())
    group = [stat for stat in living_processes() if stat.session == process.pid]
    assert len(group) == 3
    assert len(marked(process.folder)) == 3
    began = time.monotonic()
    assert process.stop(0.5) == []
    assert time.monotonic() - began < 5
    assert marked(process.folder) == []
    assert [stat for stat in living_processes() if stat.session == process.pid] == []


def test_a_start_ends_what_a_killed_leader_left_behind(process: DetachedProcess) -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DEAF!r}])"
    process.start([sys.executable, "-c", program], {})
    orphan = int(eventually(lambda: process.log.read_text()))
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not process.alive())
    assert process.start(SLEEP, {})
    assert read_stat(orphan) is None or read_stat(orphan).dead
    assert marked(process.folder) == [process.pid]


def test_a_process_whose_folder_was_wiped_is_ended_by_the_next_start(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    first = process.pid
    for path in process.folder.iterdir():
        path.unlink()
    process.folder.rmdir()
    assert process.pid is None
    assert process.start(SLEEP, {})
    assert marked(process.folder) == [process.pid]
    assert process.pid != first


def test_the_life_lock_alone_keeps_a_second_process_away(process: DetachedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.jobs.detached._SWEEP_GRACE_S", 0.2)
    lock = FileLock(process.life_path)
    assert lock.acquire("somebody")
    with pytest.raises(TemporaryError, match="held by somebody"):
        process.start(SLEEP, {})
    lock.release()
    assert process.start(SLEEP, {})


def test_the_kernel_frees_the_life_lock_with_the_process(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    with process.life_path.open() as stream, pytest.raises(BlockingIOError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    lock = FileLock(process.life_path)
    eventually(lock.acquire, timeout_s=2)
    lock.release()


def test_twenty_starters_at_once_make_one_process(process: DetachedProcess) -> None:
    program = "import sys, pathlib; from draftmill.jobs.detached import DetachedProcess\n"
    program += f"print(DetachedProcess(pathlib.Path({str(process.folder)!r})).start({SLEEP!r}, {{}}))"
    env = os.environ | {"PYTHONPATH": str(code_root())}
    starters = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env) for _ in range(20)]
    answers = [starter.communicate(timeout=60)[0].strip() for starter in starters]
    assert sorted(answers) == [b"False"] * 19 + [b"True"]
    assert marked(process.folder) == [process.pid]


def test_starters_killed_at_any_moment_leave_at_most_one_process(process: DetachedProcess) -> None:
    program = "import sys, pathlib; from draftmill.jobs.detached import DetachedProcess\nprint('go', flush=True)\n"
    program += f"DetachedProcess(pathlib.Path({str(process.folder)!r})).start({SLEEP!r}, {{}})"
    env = os.environ | {"PYTHONPATH": str(code_root())}
    for delay_ms in range(0, 60, 5):
        starters = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env) for _ in range(2)]
        for starter in starters:
            assert starter.stdout
            starter.stdout.readline()
        time.sleep(delay_ms / 1000)  # the moment of the kill is what this test varies
        for starter in starters:
            starter.kill()
            starter.communicate()
        process.start(SLEEP, {})
        assert marked(process.folder) == [process.pid]
        process.stop(5)


def test_identity_of_another_version_of_the_code_is_understood(process: DetachedProcess) -> None:
    process.start(SLEEP, {})
    change_identity(process, added_later="something")
    assert process.alive()


def test_identity_file_is_whole_json_before_the_command_runs(process: DetachedProcess) -> None:
    program = "import sys, pathlib; print(pathlib.Path('process.json').read_text())"
    process.start([sys.executable, "-c", program], {"a": 1})
    eventually(lambda: not process.alive())
    assert orjson.loads(process.log.read_text())["pid"] == process.pid
