"""A workspace whose jobs really run, and end with the test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.jobs import control
from draftmill.jobs.detached import MARK, DetachedProcess
from draftmill.jobs.models import JobKey, JobStatus, StartRequest, StatusRequest, StopRequest
from draftmill.jobs.proc import PROC, living_processes, started_with
from draftmill.jobs.step import STEPS
from draftmill.layout import Workspace
from tests.plans import make_dataset, make_plan
from tests.unit.jobs.steps_program import TEST_STEPS

PROGRAM = [sys.executable, "-u", str(Path(__file__).with_name("steps_program.py"))]


def eventually(check: Callable[[], Any], timeout_s: float = 20) -> Any:
    """The first true value of `check`; fails the test where there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        assert time.monotonic() < deadline, f"not true after {timeout_s} s: {check}"
        time.sleep(0.02)
    return value


def marked(folder: Path) -> list[int]:
    """Pids of all living processes that were started for the folder, those included that are about to become another program."""
    for stat in living_processes():
        _await_environment(stat.pid)
    return [stat.pid for stat in living_processes() if started_with(stat.pid, MARK, str(folder))]


def _await_environment(pid: int) -> None:
    """In the middle of an exec, a process shows an empty environment for an instant."""
    deadline = time.monotonic() + 0.5
    with contextlib.suppress(OSError):  # gone, or not ours; a kernel thread has no `exe`
        while (PROC / str(pid) / "exe").readlink() and not (PROC / str(pid) / "environ").read_bytes() and time.monotonic() < deadline:
            time.sleep(0.005)


class Host:
    """One workspace, asked as Airflow asks."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)

    def key(self, task: str) -> JobKey:
        return JobKey(campaign="test", task=task, dataset="alpha" if STEPS[task].per_dataset else None)

    def process(self, task: str) -> DetachedProcess:
        key = self.key(task)
        return DetachedProcess(self.workspace.campaign("test").job(key.task, key.dataset))

    def start_request(self, task: str, description: str = "", **values: Any) -> StartRequest:
        plan = make_plan(make_dataset("alpha"), make_dataset("beta"), description=description)
        return StartRequest(workspace=str(self.workspace.root), key=self.key(task), plan=plan, **values)

    def start(self, task: str, description: str = "", **values: Any) -> JobStatus:
        return control.start(self.start_request(task, description, **values), PROGRAM)

    def status(self, task: str, **values: Any) -> JobStatus:
        return control.status(StatusRequest(workspace=str(self.workspace.root), key=self.key(task), **values))

    def stop(self, task: str, **values: Any) -> JobStatus:
        return control.stop(StopRequest(workspace=str(self.workspace.root), key=self.key(task), **values))

    def finish(self, task: str, **values: Any) -> JobStatus:
        """Wait for the end; all of the log is in the answer."""
        status = self.status(task, wait_s=30, quiet_s=30, **values)
        assert status.state != "running"
        text = status.log
        while status.more:
            status = self.status(task, log_offset=status.log_offset)
            text += status.log
        return status.model_copy(update={"log": text})

    def command(self, *argv: str, **values: Any) -> subprocess.CompletedProcess[bytes]:
        """Run the command line of the test program to its end."""
        return subprocess.run([*PROGRAM, *argv], capture_output=True, check=False, timeout=60, **values)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    for verb, entry in TEST_STEPS.items():
        monkeypatch.setitem(STEPS, verb, entry)
    host = Host(tmp_path / "workspace")
    yield host
    for task in TEST_STEPS:
        assert host.process(task).stop(0.5) == []
