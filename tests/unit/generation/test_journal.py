from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.errors import TemporaryError
from draftmill.generation import journal as module
from draftmill.generation.journal import Journal, read_responses
from draftmill.generation.repair import side_file
from draftmill.generation.response import Response
from draftmill.generation.scan import scan
from tests.unit.generation.rows import make_row


def open_at(folder: Path) -> Journal:
    return Journal(folder / "a.jsonl", folder / "a.lock", "test")


def write(folder: Path, rows: list[Response]) -> Path:
    with open_at(folder) as journal:
        for row in rows:
            journal.append(row)
    return folder / "a.jsonl"


def test_rows_come_back_in_order_with_their_totals(tmp_path: Path) -> None:
    rows = [make_row(number, tokens=number % 5 + 1) for number in range(200)]
    path = write(tmp_path, rows)
    assert list(read_responses(path)) == rows
    index = scan(path)
    assert index.responses == 200
    assert index.completion_tokens == sum(row.completion_tokens for row in rows)
    assert index.prompt_tokens == sum(row.prompt_tokens for row in rows)
    assert index.finish_reasons == Counter(row.finish_reason for row in rows)
    assert index.lengths.tolist() == [row.completion_tokens for row in rows]
    assert (index.older, index.doubled, index.unreadable, index.torn) == (0, 0, [], None)
    assert all(row.id in index.ids for row in rows)
    assert make_row(1_000).id not in index.ids


def test_an_absent_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert scan(tmp_path / "none.jsonl").responses == 0
    with open_at(tmp_path / "new") as journal:
        assert journal.index.responses == 0


def test_a_row_is_found_by_its_id_before_and_after_reopening(tmp_path: Path) -> None:
    rows = [make_row(number) for number in range(50)]
    with open_at(tmp_path) as journal:
        for row in rows:
            journal.append(row)
        assert [journal.read(row.id) for row in rows] == rows
    with open_at(tmp_path) as journal:
        assert [journal.read(row.id) for row in rows] == rows
        assert journal.read(make_row(99).id) is None


def test_a_second_writer_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with open_at(tmp_path), pytest.raises(TemporaryError, match=f"being written by test, process {os.getpid()}"):
        open_at(tmp_path)
    open_at(tmp_path).close()


@pytest.mark.parametrize("whole", [0, 2])
def test_a_tail_torn_at_any_byte_is_cut_and_kept(tmp_path: Path, whole: int) -> None:
    folder = tmp_path
    rows = [make_row(number, tokens=3) for number in range(whole + 1)]
    lines = [row.to_line() for row in rows]
    path = folder / "a.jsonl"
    for cut in range(len(lines[-1])):
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
        side_file(path).unlink(missing_ok=True)
        assert list(read_responses(path))[:whole] == rows[:whole]
        complete = cut == len(lines[-1]) - 1  # only the newline is missing: the row is whole
        with open_at(folder) as journal:
            assert journal.index.responses == whole + complete
            assert journal.repaired.torn_bytes == (0 if complete else cut)
            journal.append(make_row(100))
        assert list(read_responses(path)) == [*rows[: whole + complete], make_row(100)]
        assert path.read_bytes().count(b"\n") == whole + complete + 1
        if cut and not complete:
            assert side_file(path).read_bytes() == lines[-1][:cut] + b"\n"


def test_scanning_and_reading_agree_about_every_single_damaged_byte(tmp_path: Path) -> None:
    """The scan takes sound rows without parsing them, so it must refuse whatever parsing would refuse."""
    first, line = make_row(1).to_line(), make_row(2).to_line()
    path = tmp_path / "a.jsonl"
    for place in range(len(line) - 1):
        for change in (0x20, 0x01):
            path.write_bytes(first + line[:place] + bytes([line[place] ^ change]) + line[place + 1 :])
            assert scan(path).responses == len(list(read_responses(path))), (place, change)


@settings(max_examples=60)
@given(st.data())
def test_damage_anywhere_costs_only_the_rows_it_touches(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damage")
    rows = [make_row(number, tokens=number % 4 + 1) for number in range(8)]
    lines = [row.to_line() for row in rows]
    whole = b"".join(lines)
    start = data.draw(st.integers(0, len(whole) - 2))
    garbage = data.draw(st.binary(min_size=1, max_size=300))[: len(whole) - 1 - start]
    damaged = whole[:start] + garbage + whole[start + len(garbage) :]
    path = folder / "a.jsonl"
    path.write_bytes(damaged)
    ends = [sum(map(len, lines[: number + 1])) for number in range(len(lines))]
    untouched = [
        row
        for row, line, end in zip(rows, lines, ends, strict=True)
        if damaged[end - len(line) : end] == line and (end == len(line) or damaged[end - len(line) - 1 : end - len(line)] == b"\n")
    ]
    with open_at(folder) as journal:
        assert {row.id for row in untouched} <= {row.id for row in read_responses(path)}
        assert journal.index.responses >= len(untouched)
        journal.append(make_row(100))
    repaired = path.read_bytes()
    found = list(read_responses(path))
    assert {row.id for row in found} >= {row.id for row in untouched}
    assert all(row in [*rows, make_row(100)] for row in found)
    with open_at(folder) as journal:  # a second opening finds nothing to do
        assert journal.repaired.side_file is None
        assert journal.index.responses == len(found)
    assert path.read_bytes() == repaired
    assert all(orjson.loads(line) for line in repaired.splitlines() if line.strip())


def test_doubled_and_older_rows_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    older = {"id": "old", "output_ids": [1, 2], "usage": {"completion_tokens": 2, "prompt_tokens": 3}}
    lines = [make_row(1).to_line(), orjson.dumps(older) + b"\n", make_row(1, tokens=9).to_line(), make_row(2).to_line()]
    path.write_bytes(b"".join(lines))
    index = scan(path)
    assert (index.responses, index.completion_tokens, index.doubled, index.older) == (3, 12, 1, 1)
    seen: Counter[str] = Counter()
    assert [row.id for row in read_responses(path, seen)] == [make_row(1).id, "old", make_row(2).id]
    assert seen == {"responses": 3, "doubled": 1, "older": 1}


def test_ids_of_another_form_go_the_slow_way_and_are_found(tmp_path: Path) -> None:
    rows = [make_row(1), make_row(2, id="B1/000017"), make_row(3)]
    path = write(tmp_path, rows)
    index = scan(path)
    assert index.responses == 3
    assert "B1/000017" in index.ids


def test_a_file_larger_than_one_block_is_indexed(tmp_path: Path) -> None:
    rows = [make_row(number, tokens=4_000) for number in range(120)]
    path = write(tmp_path, rows)
    assert path.stat().st_size > 2 << 20
    index = scan(path)
    assert index.lengths.tolist() == [4_000] * 120
    with open_at(tmp_path) as journal:
        assert journal.read(rows[77].id) == rows[77]


def test_no_row_is_left_half_written_when_the_file_may_not_grow(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk where a small file system cannot be mounted."""
    code = f"""
import resource, sys
from pathlib import Path
from draftmill.generation.journal import NoSpace
from tests.unit.generation.rows import make_row
from tests.unit.generation.test_journal import open_at
with open_at(Path({str(tmp_path)!r})) as journal:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, resource.RLIM_INFINITY))
    written = 0
    try:
        while True:
            journal.append(make_row(written))
            written += 1
    except NoSpace as error:
        assert "free space and run again" in str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(make_row(written))
    print(written)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    written = int(done.stdout)
    assert written >= 1
    assert list(read_responses(tmp_path / "a.jsonl")) == [make_row(number) for number in range(written + 1)]
    assert scan(tmp_path / "a.jsonl").torn is None
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def _append_for_ever(folder: str) -> None:
    with open_at(Path(folder)) as journal:
        number = journal.index.responses
        while True:
            journal.append(make_row(number, tokens=50))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += 1


def test_a_kill_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    """Three processes are killed while they append as fast as they can."""
    code = f"from tests.unit.generation.test_journal import _append_for_ever; _append_for_ever({str(tmp_path)!r})"
    acknowledged = -1
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        )
        assert process.stdout is not None
        goal = acknowledged + 150
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= goal:
                break
        process.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        process.stdout.close()
        process.wait()
        with open_at(tmp_path) as journal:  # the lock died with its holder
            assert journal.index.responses >= acknowledged + 1
    rows = list(read_responses(tmp_path / "a.jsonl"))
    assert rows == [make_row(number, tokens=50) for number in range(len(rows))]


def test_rows_are_synced_in_groups_and_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    happened = threading.Event()
    real = os.fdatasync
    path = tmp_path / "a.jsonl"

    def recording(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        real(descriptor)
        synced.append(size)
        happened.set()

    monkeypatch.setattr(module.os, "fdatasync", recording)
    with open_at(tmp_path) as journal:
        began = time.monotonic()
        journal.append(make_row(0))
        assert happened.wait(module.SYNC_SECONDS)
        assert time.monotonic() - began < module.SYNC_SECONDS
        for number in range(1, 1_000):
            journal.append(make_row(number))
            waiting = number + 1 - sum(1 for _ in path.read_bytes()[: synced[-1]].splitlines())
            assert waiting <= module.SYNC_ROWS
    assert synced[-1] == path.stat().st_size
    assert len(synced) < 200


def test_a_disk_that_cannot_sync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    journal = open_at(tmp_path)
    monkeypatch.setattr(module.os, "fdatasync", failing)
    journal.append(make_row(0))
    with pytest.raises(TemporaryError, match="could not be made durable: Input/output error"):
        journal.sync()
    with pytest.raises(TemporaryError):
        journal.append(make_row(1))
    with pytest.raises(TemporaryError):
        journal.close()
    monkeypatch.undo()
    open_at(tmp_path).close()  # the lock was given back all the same
