from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from draftmill.jobs.bundle import build
from draftmill.jobs.models import JobStatus, StatusRequest, StopRequest
from tests.unit.jobs.conftest import PROGRAM, Host


def ask(host: Host, action: str, request: bytes) -> tuple[int, dict[str, object]]:
    answer = host.command("job", action, input=request)
    assert answer.stdout.count(b"\n") == 1, "one line, and nothing else"
    return answer.returncode, orjson.loads(answer.stdout)


def test_start_status_stop(host: Host) -> None:
    code, started = ask(host, "start", host.start_request("nap").model_dump_json().encode())
    assert (code, started["state"]) == (0, "running")
    question = StatusRequest(workspace=str(host.workspace.root), key=host.key("nap")).model_dump_json().encode()
    assert ask(host, "status", question)[1]["pid"] == started["pid"]
    order = StopRequest(workspace=str(host.workspace.root), key=host.key("nap")).model_dump_json().encode()
    assert ask(host, "stop", order)[1]["state"] == "stopped"
    assert ask(host, "status", question)[1]["state"] == "stopped"


def test_the_starting_command_returns_while_the_job_runs(host: Host) -> None:
    """Its pipes close too: over SSH, a job that kept one would keep the channel open."""
    began = time.monotonic()
    host.command("job", "start", input=host.start_request("nap").model_dump_json().encode())
    assert time.monotonic() - began < 5
    assert host.process("nap").alive()


@pytest.mark.parametrize(
    ("action", "text", "words"),
    [
        ("status", b"", "Invalid JSON"),
        ("status", b"not json", "Invalid JSON"),
        ("status", b'{"workspace": "/w"}', "key: missing"),
        ("status", b'{"workspace": "/w", "key": {"campaign": "../etc", "task": "nap"}}', "key.campaign"),
        ("stop", b'{"workspace": "/w", "key": {"campaign": "c", "task": "t"}, "when": 1}', "when: unknown key"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_in_one_sentence(host: Host, action: str, text: bytes, words: str) -> None:
    code, answer = ask(host, action, text)
    assert code == 64
    assert words in str(answer["error"])


def test_a_refusal_is_on_standard_error_too(host: Host) -> None:
    request = host.start_request("quick").model_copy(update={"key": host.key("nap").model_copy(update={"dataset": "gamma"})})
    answer = host.command("job", "start", input=request.model_dump_json().encode())
    assert answer.returncode == 65
    assert answer.stderr.decode().strip() == orjson.loads(answer.stdout)["error"]
    assert b"Traceback" not in answer.stderr


def test_a_workspace_that_cannot_be_made_is_one_sentence(host: Host) -> None:
    request = host.start_request("quick").model_copy(update={"workspace": "/proc/nowhere"})
    code, answer = ask(host, "start", request.model_dump_json().encode())
    assert code == 75
    assert "/proc/nowhere" in str(answer["error"])


def test_memory_of_status_is_flat_in_the_log(host: Host, tmp_path: Path) -> None:
    """A million lines, and one line of 2 MB, take no more memory to tell of than a short log."""
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"a line of about fifty bytes, number %012d\n" % number for number in range(1_000_000)) + b"x" * (2 << 20))

    def peak_kib(path: Path) -> int:
        path.touch()
        host.start("talk", str(path))
        host.finish("talk")
        question = StatusRequest(workspace=str(host.workspace.root), key=host.key("talk")).model_dump_json().encode()
        with subprocess.Popen([*PROGRAM, "job", "status"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asker:
            assert asker.stdin
            assert asker.stdout
            asker.stdin.write(question)
            asker.stdin.close()
            assert JobStatus.model_validate_json(asker.stdout.read()).state == "done"
            _, _, usage = os.wait4(asker.pid, 0)
            asker.returncode = 0
        return usage.ru_maxrss

    assert peak_kib(text) - peak_kib(tmp_path / "empty") < 4096


def test_the_zipapp_answers_without_anything_else_on_the_path(host: Host, tmp_path: Path) -> None:
    zipapp = build(tmp_path / "code")
    question = StatusRequest(workspace=str(host.workspace.root), key=host.key("nap").model_copy(update={"task": "generate"}))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(zipapp), "job", "status"]
    answer = subprocess.run(command, input=question.model_dump_json().encode(), capture_output=True, check=True, cwd="/", env=env)
    assert JobStatus.model_validate_json(answer.stdout).state == "absent"


def test_a_real_step_runs_from_the_zipapp(host: Host, tmp_path: Path) -> None:
    """Whatever `merge` says of a campaign without a single response: it must be its own sentence, from its own process."""
    zipapp = build(tmp_path / "code")
    request = host.start_request("quick").model_copy(update={"key": host.key("quick").model_copy(update={"task": "merge"})})
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(zipapp), "job", "start"]
    answer = subprocess.run(command, input=request.model_dump_json().encode(), capture_output=True, check=True, cwd="/", env=env)
    started = JobStatus.model_validate_json(answer.stdout)
    words = Path(f"/proc/{started.pid}/cmdline").read_bytes().split(b"\0")
    assert str(zipapp).encode() in words or not words[0]
    question = StatusRequest(workspace=request.workspace, key=request.key, wait_s=60, quiet_s=60).model_dump_json().encode()
    answer = subprocess.run([*command[:-1], "status"], input=question, capture_output=True, check=True, cwd="/", env=env)
    status = JobStatus.model_validate_json(answer.stdout)
    assert status.state in {"failed", "done"}
    assert "attempt 1 of test/merge starts" in status.log
