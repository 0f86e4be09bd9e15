"""Watching a server: the judgement about a wedge, with a launch that is a real process and a probe whose answers the test decides."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.serving import watch as module
from draftmill.serving.ending import Ending
from draftmill.serving.launch import Launch, drop_old_logs, signal_name
from draftmill.serving.probe import ProbeError
from draftmill.serving.processes import MARK
from draftmill.serving.watch import Watch


class Answers:
    """What a server would say."""

    def __init__(self) -> None:
        self.generates = True
        self.counted: Any = ()
        self.asked = 0

    def generate_one(self, timeout_s: float) -> list[int]:
        self.asked += 1
        if not self.generates:
            raise ProbeError("no token")
        return [1]

    def counters(self) -> tuple[Any, ...]:
        return tuple(self.counted() if callable(self.counted) else self.counted)


CHATTY = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = Launch([sys.executable, "-c", CHATTY], os.environ, secrets.token_hex(8), tmp_path / "logs" / "server-1.log", tmp_path)
    deadline = time.monotonic() + 20
    while len(launch.members.find()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield launch
    assert launch.end(0, lambda left: None) == []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    monkeypatch.setattr(module, "_COUNTERS_S", 0.05)
    monkeypatch.setattr(module, "_CHILD_GRACE_S", 0.3)


def watched(launch: Launch, answers: Answers, *, leased: bool = True, seconds: float = 1.5) -> Ending:
    end = time.monotonic() + seconds

    def interrupted() -> Ending | None:
        return Ending("asked", "enough") if time.monotonic() > end else None

    watch = Watch(launch, answers, 0.3, lambda: leased)  # type: ignore[arg-type]
    return watch.until_end(interrupted, lambda: None)


def test_a_server_without_a_token_is_wedged(launch: Launch) -> None:
    answers = Answers()
    answers.generates = False
    ending = watched(launch, answers)
    assert ending.kind == "wedged"
    assert ending.why.startswith("has given no token for ")


def test_a_server_that_still_generates_when_asked_is_not(launch: Launch) -> None:
    answers = Answers()
    assert watched(launch, answers, seconds=3).kind == "asked"
    assert answers.asked >= 1


def test_nobody_asks_while_the_log_tells_of_batches(launch: Launch) -> None:
    answers = Answers()
    answers.generates = False
    end = time.monotonic() + 1

    def interrupted() -> Ending | None:
        with launch.log.open("a") as stream:
            stream.write("Decode batch, #running-req: 8\n")
        return Ending("asked", "enough") if time.monotonic() > end else None

    assert Watch(launch, answers, 0.3, lambda: True).until_end(interrupted, lambda: None).kind == "asked"  # type: ignore[arg-type]
    assert answers.asked == 0


def test_nobody_asks_while_a_counter_moves(launch: Launch) -> None:
    answers = Answers()
    answers.generates = False
    answers.counted = lambda: [time.monotonic()]
    assert watched(launch, answers).kind == "asked"
    assert answers.asked == 0


def test_nobody_asks_while_new_processes_come(launch: Launch) -> None:
    """Compilers, which a server starts at the first use of a kernel."""
    answers = Answers()
    answers.generates = False
    end = time.monotonic() + 1
    compilers: list[subprocess.Popen[bytes]] = []

    def interrupted() -> Ending | None:
        compilers.append(subprocess.Popen(["sleep", "60"], env={MARK: launch.mark}))
        time.sleep(0.1)
        return Ending("asked", "enough") if time.monotonic() > end else None

    try:
        assert Watch(launch, answers, 0.3, lambda: True).until_end(interrupted, lambda: None).kind == "asked"  # type: ignore[arg-type]
        assert answers.asked == 0
    finally:
        for compiler in compilers:
            compiler.kill()
            compiler.wait()


def test_an_idle_server_without_a_holder_is_left_alone(launch: Launch) -> None:
    answers = Answers()
    answers.generates = False
    assert watched(launch, answers, leased=False).kind == "asked"
    assert answers.asked == 0


def test_a_dead_launcher_is_seen_at_once(launch: Launch) -> None:
    os.kill(launch.leader.pid, 9)
    ending = watched(launch, Answers())
    assert (ending.kind, ending.why, ending.exit_code) == ("died", "exit code -9 SIGKILL", -9)


@pytest.mark.parametrize("generates", [True, False])
def test_a_dead_child_counts_where_no_token_comes_any_more(launch: Launch, generates: bool) -> None:
    (child,) = [stat for stat in launch.members.find() if stat.pid != launch.leader.pid]
    answers = Answers()
    answers.generates = generates
    watch = Watch(launch, answers, 600, lambda: True)  # type: ignore[arg-type]
    os.kill(child.pid, 9)
    end = time.monotonic() + 1.5
    ending = watch.until_end(lambda: Ending("asked", "enough") if time.monotonic() > end else None, lambda: None)
    assert ending.kind == ("asked" if generates else "died")


def test_logs_are_kept_to_a_few(tmp_path: Path) -> None:
    for number in range(15):
        path = tmp_path / f"server-{number}.log"
        path.touch()
        os.utime(path, (number, number))
    drop_old_logs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"server-{number}.log" for number in range(5, 15)}


def test_signals_have_names() -> None:
    assert signal_name(-9) == "SIGKILL"
    assert signal_name(1) == ""
    assert signal_name(-250) == "signal 250"
