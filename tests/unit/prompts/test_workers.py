"""Worker processes: order, errors, deaths, stops. Real processes throughout."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from draftmill.errors import PermanentError, StoppedError, TemporaryError
from draftmill.prompts.workers import Workers


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise PermanentError(f"no {number}")


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("count", [0, 2])
def test_results_come_in_the_order_of_the_tasks(count: int) -> None:
    with Workers(count, threading.Event()) as workers:
        assert list(workers.run(functools.partial(square, number) for number in range(200))) == [n * n for n in range(200)]
        assert list(workers.run([])) == []


def test_answers_that_nobody_waited_for_are_not_taken_for_later_ones() -> None:
    with Workers(2, threading.Event()) as workers:
        first = workers.run(functools.partial(square, number) for number in range(100))
        assert next(first) == 0
        first.close()
        assert list(workers.run(functools.partial(square, number) for number in (7, 8))) == [49, 64]


@pytest.mark.parametrize("count", [0, 1])
def test_an_error_arrives_as_it_was_raised(count: int) -> None:
    with Workers(count, threading.Event()) as workers, pytest.raises(PermanentError, match="no 3"):
        list(workers.run([functools.partial(refuse, 3)]))


def test_after_an_error_the_next_tasks_get_their_own_answers() -> None:
    with Workers(2, threading.Event()) as workers:
        for _ in range(3):
            tasks = [functools.partial(refuse if number == 5 else square, number) for number in range(50)]
            with pytest.raises(PermanentError, match="no 5"):
                list(workers.run(tasks))
            assert list(workers.run(functools.partial(square, number) for number in range(10))) == [n * n for n in range(10)]


def test_a_dead_worker_is_a_temporary_failure() -> None:
    with Workers(1, threading.Event()) as workers, pytest.raises(TemporaryError, match="code -9"):
        list(workers.run([functools.partial(die, 1)]))


@pytest.mark.parametrize("count", [0, 1])
def test_a_stop_ends_the_work(count: int) -> None:
    stop = threading.Event()
    with Workers(count, stop) as workers:
        results = workers.run(functools.partial(square, number) for number in range(1000))
        assert next(results) == 0
        stop.set()
        with pytest.raises(StoppedError):
            list(results)


def test_tasks_are_drawn_as_they_are_needed() -> None:
    drawn = []

    def tasks() -> object:
        for number in range(1000):
            drawn.append(number)
            yield functools.partial(square, number)

    with Workers(2, threading.Event()) as workers:
        results = workers.run(tasks())
        next(results)
        assert len(drawn) <= 10
        results.close()


PARENT = """
import sys, threading
from draftmill.prompts.workers import Workers
if __name__ == "__main__":
    workers = Workers(2, threading.Event())
    print(*[process.pid for process in workers._processes], flush=True)
    sys.stdin.read()
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout is not None
    workers = [psutil.Process(int(word)) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
