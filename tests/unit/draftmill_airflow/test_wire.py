"""Commands, answers, and what each kind of failure is called."""

from __future__ import annotations

import itertools
import json
import shlex

import pytest

from draftmill.jobs.models import JobKey, JobStatus
from draftmill_airflow.errors import CodeMissing, HostAnswerError, JobNeedsAPerson, PythonMissing
from draftmill_airflow.host import Host
from draftmill_airflow.wire import command, delays, last_line, read_answer

SECRET = "hf_nobody_may_see_this"
HOST = Host("gpu_host", "gpu1", "/bin/python", "~/draftmill", {"HF_TOKEN": SECRET, "SHORT": "is"})
STATUS = JobStatus(key=JobKey(campaign="c", task="generate", dataset="d"), state="running", log="é\n")


def test_the_command_is_two_quoted_paths_and_a_verb() -> None:
    line = command("/opt/it's/python", "/home/me/a b.pyz", "status")
    assert shlex.split(line) == ["/opt/it's/python", "/home/me/a b.pyz", "job", "status"]


def test_an_answer_is_its_last_line() -> None:
    said = b"Welcome to gpu1\n\n" + STATUS.model_dump_json().encode() + b"\n"
    assert read_answer(HOST, 0, said, b"locale: cannot set\n") == STATUS


def test_no_answer_holds_a_secret() -> None:
    careless = {"token": SECRET, "lines": [f"a {SECRET}", 7, None], "nested": {SECRET: "is"}}
    said = STATUS.model_copy(
        update={"log": f"t={SECRET}\nthis is fine\n", "error": SECRET, "result": careless, "progress": {"message": SECRET}}
    )
    found = read_answer(HOST, 0, said.model_dump_json().encode(), b"")
    assert SECRET not in found.model_dump_json()
    assert found.log == "t=***\nthis is fine\n"
    assert found.result == {"token": "***", "lines": ["a ***", 7, None], "nested": {"***": "is"}}
    for exit_status in (0, 65, 75, 127):
        with pytest.raises(Exception, match="gpu1") as caught:
            read_answer(HOST, exit_status, b"", f"sh: {SECRET}\n".encode())
        assert SECRET not in str(caught.value)


def test_a_secret_of_several_lines_is_hidden_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----\n"
    host = Host("gpu_host", "gpu1", "/bin/python", "~/draftmill", {"KEY": key})
    said = STATUS.model_copy(update={"log": "prints abcdefgh here\n"})
    assert read_answer(host, 0, said.model_dump_json().encode(), b"").log == "prints *** here\n"


@pytest.mark.parametrize(
    ("exit_status", "stdout", "stderr", "kind", "words"),
    [
        (0, b"", b"", HostAnswerError, "ends with 'nothing'"),
        (0, b"{}", b"", HostAnswerError, "cannot be read"),
        (0, b"\xff\xfe", b"", HostAnswerError, "cannot be read"),
        (65, json.dumps({"error": "no such step"}).encode(), b"", JobNeedsAPerson, "gpu1: no such step"),
        (64, json.dumps({"error": "does not fit"}).encode(), b"", JobNeedsAPerson, "gpu1: does not fit"),
        (75, json.dumps({"error": "the disk is full"}).encode(), b"", HostAnswerError, "exit code 75: the disk is full"),
        (127, b"", b"sh: 1: /opt/python: not found\n", PythonMissing, "draftmill.python"),
        (126, b"", b"sh: 1: /opt/python: Permission denied\n", PythonMissing, "Permission denied"),
        (2, b"", b"/opt/python: can't open file '/x.pyz': [Errno 2]\n", CodeMissing, "the next try delivers it again"),
        (1, b"", b"/opt/python: can't find '__main__' module in '/x.pyz'\n", CodeMissing, "delivered code is gone"),
        (1, b"", b"", HostAnswerError, "no message"),
        (137, b"", b"Killed\n", HostAnswerError, "exit code 137: Killed"),
    ],
)
def test_failures_are_told_apart(exit_status: int, stdout: bytes, stderr: bytes, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        read_answer(HOST, exit_status, stdout, stderr)
    assert words in str(caught.value)


def test_last_line_of_nothing() -> None:
    assert last_line(b"\n \n") == ""


def test_delays_grow_and_are_spread() -> None:
    runs = [list(itertools.islice(delays(1, 30), 12)) for _ in range(50)]
    assert all(0.5 <= delay <= 30 for run in runs for delay in run)
    assert max(run[-1] for run in runs) > 15
    assert len({run[5] for run in runs}) == 50
