"""JSON arrays: read element by element, across pieces, past damage."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.sources.readers import json_values
from draftmill.sources.readers.json_lines import DAMAGED
from draftmill.sources.readers.json_values import read_values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that values are cut in two everywhere."""
    monkeypatch.setattr(json_values, "_PIECE", 5)


def read(path: Path, text: str) -> list[Any]:
    path.write_text(text, encoding="utf-8")
    return list(read_values(str(path)))


@given(values=st.lists(JSON), indent=st.sampled_from([None, 2]), bom=st.booleans())
def test_an_array_gives_its_elements(tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, bom: bool) -> None:
    path = tmp_path_factory.mktemp("array") / "a.json"
    assert read(path, "\ufeff" * bom + json.dumps(values, indent=indent, ensure_ascii=False)) == values


def test_values_one_after_another(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '{\n "a": 1\n}\n{\n "a": 2\n}') == [{"a": 1}, {"a": 2}]
    assert read(tmp_path / "b.json", "") == []


def test_an_empty_array_among_the_elements_ends_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '[{"a": 1}, [], [{"a": 2}], [[]], {"a": 3}]') == [{"a": 1}, [], [{"a": 2}], [[]], {"a": 3}]


def test_arrays_one_after_another_are_all_read(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '[\n{"a": 1},\n{"a": 2}\n]\n[\n{"a": 3}\n] []\n') == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_what_stands_behind_an_array_is_counted(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '[{"a": 1}] ] noise') == [{"a": 1}, DAMAGED]


def test_numbers_are_not_cut(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", "[1234567890, 12.5e10, true, null]") == [1234567890, 12.5e10, True, None]


@pytest.mark.parametrize(
    "broken",
    [
        '{"id": 2, "turns": [{"from": "a"}, {"from": }]}',
        '{"id": 2, "turns": [{"from": "a"}, {"from": "b"]}',
        '{"id": 2 "turns": []}',
        '{"id": 2, "text": "\\q"}',
    ],
)
def test_a_damaged_element_is_marked_once_and_the_next_is_read(tmp_path: Path, broken: str) -> None:
    text = f'[{{"id": 1, "turns": []}}, {broken}, {{"id": 3, "turns": [{{"from": "c"}}]}}, {{"id": 4}}]'
    assert read(tmp_path / "a.json", text) == [{"id": 1, "turns": []}, DAMAGED, {"id": 3, "turns": [{"from": "c"}]}, {"id": 4}]


def test_an_array_that_ends_early_keeps_what_is_whole(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '[{"id": 1}, {"id": 2}, {"id": 3, "te') == [{"id": 1}, {"id": 2}, DAMAGED]


def test_lone_surrogates_and_separators_inside_text(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '[{"a": "\\ud83d"}, {"a": "x\u2028]}, {y"}]') == [{"a": "\ud83d"}, {"a": "x\u2028]}, {y"}]


def test_memory_does_not_grow_with_the_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "_PIECE", 1 << 16)
    path = tmp_path / "a.json"
    with path.open("w") as stream:
        stream.write("[")
        for number in range(20_000):
            stream.write(json.dumps({"id": number, "text": "word " * 100}) + ",\n")
        stream.write("{}]")
    tracemalloc.start()
    count = sum(1 for _ in read_values(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_001
    assert peak < path.stat().st_size / 5
