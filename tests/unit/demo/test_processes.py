"""Background processes: found again, stopped with all they started, and nobody else's ever touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from demo.processes import MARK, Background, leftovers, stop_leftovers
from demo.state import Demo

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
SLEEPING_CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
PARENT = [sys.executable, "-c", f"import subprocess, sys, time; print({SLEEPING_CHILD}.pid, flush=True); time.sleep(600)"]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path / "demo")
    demo.root.mkdir()
    yield demo
    for process in leftovers(demo):
        process.kill()


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]}


def first_line(path: Path) -> str:
    """The first whole line of a log that a process is about to write."""
    tail = subprocess.run(["timeout", "30", "sh", "-c", f"tail -n +1 -f {path} | head -n 1"], capture_output=True, text=True, check=False)
    return tail.stdout.strip()


def test_a_process_is_found_again_by_another_object(demo: Demo) -> None:
    Background(demo).start("one", SLEEP, environment())
    found = Background(demo).find("one")
    assert found is not None
    assert os.getsid(found.pid) == found.pid


def test_stop_ends_children_too(demo: Demo) -> None:
    background = Background(demo)
    background.start("parent", PARENT, environment())
    child = int(first_line(background.log("parent")))
    background.stop(["parent"])
    assert background.find("parent") is None
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_pid_that_now_belongs_to_somebody_else_is_not_ours(demo: Demo) -> None:
    background = Background(demo)
    background.start("one", SLEEP, environment())
    recorded = demo.processes.read_text()
    background.stop(["one"])
    stranger = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        record = psutil.Process(stranger.pid)
        demo.processes.write_text(f'{{"one": {{"pid": {record.pid}, "started": {record.create_time() - 1000}}}}}')
        background.stop(["one"])
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        demo.processes.write_text(recorded)


def test_leftovers_are_found_by_the_mark_wherever_they_moved(demo: Demo) -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, env=environment() | {MARK: str(demo.root)}, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert [process.pid for process in leftovers(demo)] == [child.pid]
        assert leftovers(Demo(demo.root.parent / "another")) == []
        assert stop_leftovers(demo) == []
    assert not psutil.pid_exists(child.pid)


def test_an_orphan_of_a_dead_process_is_a_leftover_though_it_has_no_mark(demo: Demo) -> None:
    background = Background(demo)
    orphan = f"import os, subprocess, sys; os.environ.clear(); print({SLEEPING_CHILD}.pid)"
    background.start("short", [sys.executable, "-c", orphan], environment())
    pid = int(first_line(background.log("short")))
    psutil.wait_procs([process for process in [background.find("short")] if process], timeout=30)
    assert pid in [process.pid for process in leftovers(demo)]
    assert stop_leftovers(demo) == []
    assert pid not in [process.pid for process in leftovers(demo)]
