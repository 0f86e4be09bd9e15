"""Files appear whole or not at all, and a killed writer's leftovers go with the next write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from draftmill.files import atomic_writer, read_json, remove_abandoned, write_json

WRITE_FOREVER = """
import sys
from pathlib import Path
from draftmill.files import atomic_writer
with atomic_writer(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def writer_at_work(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITE_FOREVER, str(path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"writing\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def test_an_error_leaves_what_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json(path, 1)

    def write_badly() -> None:
        with atomic_writer(path) as stream:
            stream.write(b"2")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_badly()
    assert read_json(path) == 1
    assert names(tmp_path) == ["state.json"]


def test_mode_is_that_asked_for(tmp_path: Path) -> None:
    write_json(tmp_path / "secret.json", {}, mode=0o600)
    assert (tmp_path / "secret.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["state.json", "odd [1] *.json"])
def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    process = writer_at_work(path)
    process.send_signal(signal.SIGKILL)
    end(process)
    assert len(names(tmp_path)) == 1
    write_json(path, 3)
    assert names(tmp_path) == [name]


def test_a_living_writer_keeps_its_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    process = writer_at_work(path)
    write_json(path, 1)
    remove_abandoned(tmp_path, ".*.tmp")
    end(process)
    assert process.returncode == 0
    assert path.read_bytes() == b"half"
    assert names(tmp_path) == ["state.json"]


def test_many_writers_of_one_name(tmp_path: Path) -> None:
    """Each write succeeds whatever the others remove: a partial file seen before it is locked is made anew."""
    path = tmp_path / "state.json"
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(50):
                write_json(path, os.getpid())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert names(tmp_path) == ["state.json"]
