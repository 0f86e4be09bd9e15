from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from draftmill.errors import StoppedError
from draftmill.generation.slots import Slots


def silent(text: str) -> None:
    assert text


def test_a_slot_is_waited_for_and_given_back(tmp_path: Path) -> None:
    first, second = Slots(tmp_path, "a", 100, 1), Slots(tmp_path, "b", 100, 1)
    first.acquire(threading.Event(), silent)
    told = threading.Event()
    waiting = threading.Thread(target=second.acquire, args=(threading.Event(), lambda _: told.set()))
    waiting.start()
    assert told.wait(10)
    first.release()
    first.release()
    waiting.join(10)
    assert not waiting.is_alive()
    second.release()


def test_the_longest_answers_go_first_among_those_who_wait(tmp_path: Path) -> None:
    holder = Slots(tmp_path, "holder", 1, 1)
    holder.acquire(threading.Event(), silent)
    order: list[str] = []
    threads = []
    for name, expected in (("short", 100), ("long", 8_000), ("middle", 900)):
        slots, told = Slots(tmp_path, name, expected, 1), threading.Event()

        def take(slots: Slots = slots, name: str = name, told: threading.Event = told) -> None:
            slots.acquire(threading.Event(), lambda _: told.set())
            order.append(name)
            slots.release()

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        assert told.wait(10)
    holder.release()
    for thread in threads:
        thread.join(20)
    assert order == ["long", "middle", "short"]


def test_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    holder = Slots(tmp_path, "a", 100, 1)
    holder.acquire(threading.Event(), silent)
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        Slots(tmp_path, "b", 100, 1).acquire(stop, silent)


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    code = (
        "import threading; from pathlib import Path; from draftmill.generation.slots import Slots;"
        f"Slots(Path({str(tmp_path)!r}), 'a', 1, 1).acquire(threading.Event(), print); print('held', flush=True); threading.Event().wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    process.kill()
    process.wait()
    process.stdout.close()
    Slots(tmp_path, "b", 1, 1).acquire(threading.Event(), silent)
