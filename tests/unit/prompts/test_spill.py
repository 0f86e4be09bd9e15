"""The external sort."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from draftmill.prompts.spill import Spill, bucket_count, candidates, distinct_keys


def rows(count: int) -> list[tuple[bytes, bytes, bytes]]:
    made = []
    for number in range(count):
        payload = f"row {number % (count - count // 5)}".encode()
        row_id = hashlib.blake2b(payload, digest_size=16).digest()
        made.append((hashlib.blake2b(row_id, digest_size=8).digest(), row_id, payload))
    return made


@pytest.mark.parametrize("buckets", [1, 16])
@pytest.mark.parametrize("processes", [1, 3])
def test_candidates_come_in_key_order_each_id_once(tmp_path: Path, buckets: int, processes: int) -> None:
    given = rows(2000)
    random.Random(1).shuffle(given)
    spills = [Spill(tmp_path, str(number), buckets, None) for number in range(processes)]
    for number, row in enumerate(given):
        spills[number % processes].add(*([part] for part in row))
    for spill in spills:
        spill.flush()
    assert list(candidates(tmp_path)) == sorted(set(given))
    found = [int(key) for piece in distinct_keys(tmp_path) for key in piece]
    assert found == sorted({int.from_bytes(key, "big") for key, _, _ in given})


def test_of_rows_with_one_id_the_smallest_payload_is_taken(tmp_path: Path) -> None:
    for number, payload in enumerate((b"z", b"a", b"m")):
        spill = Spill(tmp_path, str(number), 1, None)
        spill.add([b"k" * 8], [b"i" * 16], [payload])
        spill.flush()
    assert list(candidates(tmp_path)) == [(b"k" * 8, b"i" * 16, b"a")]


def test_a_bound_keeps_all_candidates_up_to_its_threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.prompts.spill._FLUSH_ROWS", 100)
    given = rows(5000)
    spill = Spill(tmp_path, "a", 4, 50)
    for row in given:
        spill.add(*([part] for part in row))
    spill.flush()
    assert spill.threshold is not None
    below = sorted(row for row in set(given) if row[0] <= spill.threshold)
    found = list(candidates(tmp_path))
    assert [row for row in found if row[0] <= spill.threshold] == below
    assert 50 <= len(below) < 400
    assert len(found) < 1000, "what cannot be among the first is not written"
    assert sum(len(piece) for piece in distinct_keys(tmp_path)) == len(set(given)), "every key is counted"


def test_nothing_is_kept_where_only_keys_are_wanted(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "a", 1, 0)
    for row in rows(10):
        spill.add(*([part] for part in row))
    spill.flush()
    assert list(candidates(tmp_path)) == []
    assert sum(len(piece) for piece in distinct_keys(tmp_path)) == 8


def test_buckets_grow_with_the_source() -> None:
    assert bucket_count(0) == 1
    assert bucket_count(100 << 20) == 16
    assert bucket_count(1 << 50) == 1024
