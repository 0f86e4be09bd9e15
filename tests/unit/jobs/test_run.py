from __future__ import annotations

import os
import signal
import time

import pytest

from draftmill.files import read_json
from tests.unit.jobs.conftest import Host, eventually


@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        ("permanent", 65, "the model is missing; give its path"),
        ("temporary", 75, "the port is busy"),
        ("unexpected", 75, "unexpected ZeroDivisionError: a division; the log has the traceback"),
        ("validation", 65, "Plan: campaign: Input should be a valid string (found 5)"),
        ("memory", 75, "the host ran out of memory"),
        ("disk", 75, "the disk is full at /data/file"),
        ("exit", 75, "unexpected SystemExit: 3"),
        ("import", 65, "this Python has no module 'no_such_module'"),
        ("result", 75, "unexpected TypeError"),
    ],
)
def test_each_kind_of_failure_has_its_code_and_sentence(host: Host, kind: str, code: int, error: str) -> None:
    host.start("fail", kind)
    status = host.finish("fail")
    assert (status.state, status.exit_code) == ("failed", code)
    assert status.error is not None
    assert status.error.startswith(error)
    assert "\n" not in status.error
    assert ("Traceback" in status.log) == ("unexpected" in status.error or kind == "import")


def test_the_heart_beats_while_the_step_is_silent(host: Host) -> None:
    host.start("nap")
    first = eventually(lambda: host.status("nap").heartbeat_at)
    second = eventually(lambda: (at := host.status("nap").heartbeat_at) and at > first and at)
    assert second - first < 6
    assert second <= time.time()


def test_term_before_the_step_is_loaded_counts_as_a_stop(host: Host) -> None:
    for delay_ms in (0, 40, 80, 160, 320):
        host.start("nap")
        time.sleep(delay_ms / 1000)  # the moment of the signal is what this test varies
        answer = host.stop("nap")
        assert (answer.state, answer.exit_code) == ("stopped", 79)


def test_ctrl_c_is_a_stop_too(host: Host) -> None:
    started = host.start("nap")
    eventually(lambda: host.status("nap").progress)
    assert started.pid
    os.kill(started.pid, signal.SIGINT)
    assert host.finish("nap").state == "stopped"


def test_run_job_refuses_a_folder_that_is_not_its_own(host: Host) -> None:
    host.start("quick")
    host.finish("quick")
    folder = host.process("quick").folder
    before = read_json(folder / "result.json")
    answer = host.command("run-job", str(folder))
    assert answer.returncode == 65
    assert b"start jobs with `job start`" in answer.stderr
    assert read_json(folder / "result.json") == before
