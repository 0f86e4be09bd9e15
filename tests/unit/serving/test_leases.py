from __future__ import annotations

import threading
from pathlib import Path

from draftmill.serving.leases import LeaseFile, held_leases


def test_held_leases_are_listed_oldest_first(tmp_path: Path) -> None:
    first, second = LeaseFile(tmp_path, "one/alpha", "r"), LeaseFile(tmp_path, "two/beta", "r")
    notes = held_leases(tmp_path)
    assert [note.owner for note in notes] == ["one/alpha", "two/beta"]
    assert [note.owner for note in held_leases(tmp_path, except_for=first.path)] == ["two/beta"]
    first.release()
    assert [note.owner for note in held_leases(tmp_path)] == ["two/beta"]
    second.release()
    assert held_leases(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_files_nobody_holds_are_removed(tmp_path: Path) -> None:
    (tmp_path / "1-a.lease").write_text("{}")
    assert held_leases(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert held_leases(tmp_path / "absent") == []


def test_a_lease_survives_those_who_clean_up_at_the_moment_it_is_taken(tmp_path: Path) -> None:
    """Cleaning removes files whose lock is free; a lease is in danger between the making of its file and its lock."""
    done = threading.Event()

    def clean() -> None:
        while not done.is_set():
            held_leases(tmp_path)

    cleaners = [threading.Thread(target=clean) for _ in range(2)]
    for cleaner in cleaners:
        cleaner.start()
    try:
        for _ in range(300):
            lease = LeaseFile(tmp_path, "one/alpha", "r")
            assert lease.path.exists()
            assert [note.pid for note in held_leases(tmp_path)] != []
            lease.release()
    finally:
        done.set()
        for cleaner in cleaners:
            cleaner.join()


def test_a_lease_without_a_note_is_still_one(tmp_path: Path) -> None:
    lease = LeaseFile(tmp_path, "one/alpha", "r")
    lease.path.write_text("")
    assert str(held_leases(tmp_path)[0]) == "somebody (pid 0)"
    lease.release()
