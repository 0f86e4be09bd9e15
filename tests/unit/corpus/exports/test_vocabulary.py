"""Token counts and the draft vocabulary, in both trainers' forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.corpus.exports.vocabulary import VocabularySink, draft_mapping
from draftmill.errors import PermanentError
from tests.unit.corpus.test_record import make_row

PROMPTS = {"vocab_size": 50, "special_token_ids": [40, 41, 60], "eos_token_ids": [41]}


def picked(d2t: np.ndarray) -> list[int]:
    """Target ids of the draft tokens, as both trainers compute them."""
    return (d2t + np.arange(len(d2t))).tolist()


@given(st.lists(st.integers(0, 1000), min_size=20, max_size=200), st.data())
def test_the_mapping_is_the_most_frequent_tokens_and_the_forced_ones(counts: list[int], data: st.DataObject) -> None:
    always = sorted(data.draw(st.sets(st.integers(0, len(counts) - 1), max_size=10)))
    size = data.draw(st.integers(max(1, len(always)), len(counts)))
    mapping = draft_mapping(np.array(counts), size, always)
    tokens = picked(mapping.d2t)
    assert mapping.d2t.dtype == np.int64
    assert mapping.t2d.dtype == np.bool_
    assert len(tokens) == size
    assert tokens == sorted(set(tokens)) == np.flatnonzero(mapping.t2d).tolist()
    assert set(always) <= set(tokens)
    chosen, left = [counts[token] for token in tokens if token not in always], [c for token, c in enumerate(counts) if token not in tokens]
    assert not chosen or not left or min(chosen) >= max(left)
    if sum(counts):
        assert mapping.coverage == pytest.approx(sum(counts[token] for token in tokens) / sum(counts))


def test_ties_and_padding_go_to_the_smaller_id() -> None:
    counts = np.zeros(30, dtype=np.int64)
    counts[[7, 9, 20]] = [5, 3, 3]
    assert picked(draft_mapping(counts, 2, []).d2t) == [7, 9]
    assert picked(draft_mapping(counts, 6, [25]).d2t) == [0, 1, 7, 9, 20, 25]
    assert draft_mapping(counts, 2, []).coverage == pytest.approx(8 / 11)


@pytest.mark.parametrize("size", [2, 51])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(PermanentError, match=rf"corpus.draft_vocab_size: {size} must be between 3 .* and 50"):
        draft_mapping(np.zeros(50, dtype=np.int64), size, [1, 2, 3])


def write(folder: Path, draft_size: int | None) -> VocabularySink:
    with VocabularySink(folder / "vocabulary", draft_size, PROMPTS) as sink:
        sink.add(make_row([3, 3, 3, 3], [5, 5, 7]))
        sink.add(make_row([9], [5, 41]))
    return sink


def test_only_generated_tokens_are_counted(tmp_path: Path) -> None:
    sink = write(tmp_path, 4)
    counts = np.load(tmp_path / "vocabulary/token_counts.npy")
    assert {int(token): int(counts[token]) for token in np.flatnonzero(counts)} == {5: 3, 7: 1, 41: 1}
    assert picked(np.load(tmp_path / "vocabulary/d2t-4.npy")) == [5, 7, 40, 41]
    told = sink.describe()
    assert (told["target_size"], told["distinct_tokens"], told["draft_size"], told["coverage"]) == (50, 3, 4, 1.0)
    assert told["always_in"] == [40, 41], "tokens that the model has no rows for cannot be in it"


def test_a_draft_vocabulary_as_large_as_the_targets_needs_no_mapping(tmp_path: Path) -> None:
    sink = write(tmp_path, 50)
    assert not list((tmp_path / "vocabulary").glob("d2t*"))
    assert "no mapping" in sink.describe()["notes"][0]
    assert sink.describe()["draft_size"] is None


def test_what_speculators_looks_for_lies_beside_the_arrow_files(tmp_path: Path) -> None:
    (tmp_path / "arrow/train").mkdir(parents=True)
    write(tmp_path, 4)
    for name in ("d2t-4.npy", "t2d-4.npy"):
        assert (tmp_path / "arrow/train" / name).read_bytes() == (tmp_path / "vocabulary" / name).read_bytes()


def test_after_an_error_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), VocabularySink(tmp_path / "vocabulary", 4, PROMPTS):
        _ = 1 / 0
    assert not (tmp_path / "vocabulary").exists()
