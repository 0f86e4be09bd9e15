from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmill.errors import PermanentError
from draftmill.files import read_json, write_json
from draftmill.jobs import control
from draftmill.jobs.models import JobKey, JobStatus
from draftmill.jobs.proc import read_stat
from tests.plans import make_dataset, make_plan
from tests.unit.jobs.conftest import PROGRAM, Host, eventually, marked


def running(host: Host, task: str = "nap") -> bool:
    """Past its start: its first progress has come."""
    status = host.status(task)
    return status.state == "running" and status.progress is not None


def test_a_job_runs_to_its_result(host: Host) -> None:
    started = host.start("quick", "hello", secrets={"TEST_TOKEN": "s3cret"})
    assert (started.state, started.attempt, started.attached) == ("running", 1, False)
    status = host.finish("quick")
    assert (status.state, status.exit_code, status.error) == ("done", 0, None)
    assert status.result is not None
    assert status.result["description"] == "hello"
    assert status.result["token"] == "s3cret"
    assert status.progress is not None
    assert status.progress["message"] == "quick work"
    assert "a stray print\n" in status.log
    assert "done after" in status.log.splitlines()[-1]


def test_a_secret_is_in_its_one_file_alone(host: Host) -> None:
    started = host.start("nap", secrets={"TEST_TOKEN": "s3cret-value"})
    eventually(lambda: running(host))
    assert b"s3cret-value" not in Path(f"/proc/{started.pid}/cmdline").read_bytes()
    files = [path for path in host.workspace.root.rglob("*") if path.is_file()]
    assert [path.name for path in files if b"s3cret-value" in path.read_bytes()] == ["secrets.json"]
    assert host.workspace.secrets.stat().st_mode & 0o777 == 0o600
    again = host.start("nap", secrets={"TEST_TOKEN": "another"})
    assert again.attached, "a secret is no part of what makes a job the same"


def test_what_a_careless_step_says_can_be_read_by_its_owner_alone(host: Host) -> None:
    """A message, a result or an error may repeat what a library said, and that may be a secret."""
    host.start("quick", "hello", secrets={"TEST_TOKEN": "s3cret-value"})
    host.finish("quick")
    files = [path for path in host.workspace.root.rglob("*") if path.is_file()]
    told = [path for path in files if b"s3cret-value" in path.read_bytes()]
    assert {"secrets.json", "result.json"} <= {path.name for path in told}
    assert {path.stat().st_mode & 0o077 for path in told} == {0}
    modes = {path.name: path.stat().st_mode & 0o077 for path in files}
    assert modes["heartbeat.json"] == modes["plan.json"] == 0


def test_a_second_start_attaches(host: Host) -> None:
    first = host.start("nap")
    second = host.start("nap")
    assert (second.attached, second.pid, second.attempt, second.spec) == (True, first.pid, 1, first.spec)


def test_a_change_of_its_own_data_set_replaces_it_in_order(host: Host) -> None:
    first = host.start("nap")
    eventually(lambda: running(host))
    second = host.start("nap", "something else")
    assert (second.attached, second.attempt) == (False, 2)
    assert second.spec != first.spec
    assert "stopped after" in host.process("nap").log_of(1).read_text()
    assert marked(host.process("nap").folder) == [second.pid]


def test_a_change_of_another_data_set_attaches(host: Host) -> None:
    request = host.start_request("nap")
    first = control.start(request, PROGRAM)
    beta = make_dataset("beta", budget_tokens=99)
    changed = request.model_copy(update={"plan": make_plan(make_dataset("alpha"), beta)})
    assert control.start(changed, PROGRAM).attached
    assert control.start(changed, PROGRAM).pid == first.pid


def test_a_dead_job_is_started_again(host: Host) -> None:
    host.start("quick")
    host.finish("quick")
    again = host.start("quick")
    assert (again.state, again.attempt, again.attached) == ("running", 2, False)
    assert host.finish("quick").state == "done"


def test_twenty_starts_at_once_make_one_process(host: Host) -> None:
    text = host.start_request("nap").model_dump_json().encode()
    starters = [
        subprocess.Popen([*PROGRAM, "job", "start"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(20)
    ]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda starter: starter.communicate(text, timeout=60), starters))
    statuses = [JobStatus.model_validate_json(stdout) for stdout, _ in answers]
    assert sorted(status.attached for status in statuses) == [False] + [True] * 19
    assert len({status.pid for status in statuses}) == 1
    assert marked(host.process("nap").folder) == [statuses[0].pid]
    assert {status.attempt for status in statuses} == {1}


def test_a_killed_job_is_lost_within_two_seconds(host: Host) -> None:
    host.start("nap")
    eventually(lambda: running(host))
    pid = host.process("nap").pid
    assert pid
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(host.status, "nap", wait_s=30, quiet_s=30)
        threading.Event().wait(0.3)  # so that the question is pending when the job dies
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        status = waiting.result()
    assert time.monotonic() - killed < 2
    assert status.state == "lost"
    assert status.exit_code is None
    assert f"pid {pid}" in (status.error or "")


@pytest.mark.parametrize("changes", [{"start_ticks": 1}, {"boot_id": "another"}], ids=["pid given out again", "rebooted"])
def test_an_identity_that_fits_no_process_is_lost(host: Host, changes: dict[str, object]) -> None:
    host.start("nap")
    path = host.process("nap").folder / "process.json"
    original = read_json(path)
    write_json(path, original | changes)
    assert host.status("nap", wait_s=30).state == "lost"
    write_json(path, original)
    assert host.status("nap").state == "running"


def test_a_wiped_folder_is_absent_and_its_job_ends_by_itself(host: Host) -> None:
    host.start("nap")
    eventually(lambda: running(host))
    process = host.process("nap")
    pid = process.pid
    assert pid
    for path in process.folder.iterdir():
        path.unlink()
    process.folder.rmdir()
    assert host.status("nap", wait_s=30).state == "absent"
    eventually(lambda: (stat := read_stat(pid)) is None or stat.dead)
    assert not process.folder.exists(), "the dying job must not make its folder anew"


def test_stop_in_order_keeps_the_result(host: Host) -> None:
    host.start("nap")
    eventually(lambda: running(host))
    answer = host.stop("nap")
    assert (answer.state, answer.exit_code) == ("stopped", 79)
    status = host.finish("nap")
    assert "what was finished is kept" in status.log
    assert host.stop("nap").state == "stopped", "stopping twice is harmless"


def test_stop_kills_what_clings_and_all_it_started(host: Host, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    host.start("cling", str(note))
    eventually(note.exists)
    children = [int(pid) for pid in eventually(lambda: note.read_text().split())]
    began = time.monotonic()
    answer = host.stop("cling", grace_s=0.5)
    assert time.monotonic() - began < 5
    assert (answer.state, answer.error) == ("stopped", "killed: it did not end in order within 0.5 s")
    assert all((stat := read_stat(pid)) is None or stat.dead for pid in children)


def test_stop_of_a_job_that_never_was(host: Host) -> None:
    assert host.stop("nap").state == "absent"


def test_a_late_stop_by_an_earlier_asker_is_passed_over(host: Host) -> None:
    host.start("nap", asker="try 1")
    assert host.start("nap", asker="try 2").attached
    assert host.stop("nap", asker="try 1").state == "running"
    assert host.process("nap").alive()
    assert host.stop("nap", asker="try 2").state == "stopped"


def test_status_waits_for_news_and_no_longer(host: Host) -> None:
    host.start("nap")
    eventually(lambda: running(host))
    seen = host.status("nap", quiet_s=0.5, wait_s=0.5)
    began = time.monotonic()
    again = host.status("nap", wait_s=1, log_offset=seen.log_offset)
    assert 0.9 < time.monotonic() - began < 3
    assert again.state == "running"
    assert again.log == ""


def test_the_host_remembers_what_was_shown(host: Host, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"line %05d\n" % number for number in range(10_000)))
    host.start("talk", str(text))
    host.finish("talk")
    first = host.status("talk", max_log_bytes=4096)
    assert host.status("talk", max_log_bytes=4096, log_offset=None).log == first.log, "what was not confirmed is shown again"
    second = host.status("talk", max_log_bytes=4096, log_offset=first.log_offset)
    assert host.status("talk", max_log_bytes=4096, log_offset=None).log == second.log


def test_a_newer_attempt_begins_its_log_at_the_first_line(host: Host) -> None:
    host.start("quick", "one")
    first = host.finish("quick")
    host.start("quick", "two")
    host.finish("quick")
    second = host.status("quick", attempt=1, log_offset=first.log_offset)
    assert second.attempt == 2
    assert "attempt 2 of test/quick starts" in second.log.splitlines()[0]
    assert host.status("quick", log_offset=None).log == second.log, "nothing of attempt 2 was confirmed"


def test_the_last_line_arrives_whatever_the_pieces(host: Host, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes("".join(f"Zeile {number} äöü\n" for number in range(5_000)).encode() + b"\xff\xfe broken\nno end")
    host.start("talk", str(text))
    status = host.finish("talk", max_log_bytes=1500)
    lines = status.log.split("\n")
    assert "Zeile 4999 äöü" in lines
    assert "�� broken" in lines
    assert any(line.startswith("no end") for line in lines)


def test_the_campaigns_plan_is_kept_by_its_steps_without_a_data_set(host: Host) -> None:
    plan = host.workspace.campaign("test").plan
    host.start("nap")
    assert not plan.exists()
    host.start("quick")
    assert [entry["name"] for entry in read_json(plan)["datasets"]] == ["alpha", "beta"]
    assert [entry["name"] for entry in read_json(host.process("nap").folder / "plan.json")["datasets"]] == ["alpha"]
    host.finish("quick")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (JobKey(campaign="test", task="dance"), "'dance' is no step"),
        (JobKey(campaign="other", task="quick"), "campaign test"),
        (JobKey(campaign="test", task="nap"), "needs the name of a data set"),
        (JobKey(campaign="test", task="quick", dataset="alpha"), "takes no data set"),
        (JobKey(campaign="test", task="nap", dataset="gamma"), "no data set gamma; it has alpha"),
    ],
)
def test_a_key_that_does_not_fit_its_plan_is_refused(host: Host, key: JobKey, words: str) -> None:
    with pytest.raises(PermanentError, match=words):
        control.start(host.start_request("quick").model_copy(update={"key": key}), PROGRAM)
    assert not host.workspace.root.exists()
