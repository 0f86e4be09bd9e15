"""Answers that differ in a few words are near duplicates; others are not."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill.corpus.quality.near_duplicates import NearDuplicates
from draftmill.corpus.quality.phrases import quad_hashes


def hashes(ids: np.ndarray) -> np.ndarray:
    return quad_hashes(ids.astype(np.int32))


def text(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 160_000, length)


@pytest.mark.parametrize("length", [80, 300, 3000, 16_000])
def test_the_same_answer_again_is_found(length: int) -> None:
    seen = NearDuplicates()
    assert not seen(hashes(text(1, length)))
    assert seen(hashes(text(1, length)))


def test_a_few_changed_words_do_not_hide_it() -> None:
    found = 0
    for seed in range(50):
        seen = NearDuplicates()
        changed = text(seed, 4000)
        seen(hashes(changed))
        changed[[200, 2100]] = 7
        found += seen(hashes(changed))
    assert found >= 48


def test_half_the_same_is_not_the_same() -> None:
    for seed in range(50):
        seen = NearDuplicates()
        seen(hashes(text(seed, 4000)))
        assert not seen(hashes(np.concatenate([text(seed, 2000), text(seed + 1000, 2000)])))


def test_different_answers_are_different_however_many() -> None:
    seen = NearDuplicates()
    assert not any(seen(hashes(text(seed, 300))) for seed in range(3000))
    assert seen(hashes(text(5, 300)))


def test_short_answers_may_be_the_same() -> None:
    seen = NearDuplicates()
    assert not any(seen(hashes(text(1, 60))) for _ in range(5))


def test_a_loop_has_few_phrases_and_still_finds_its_like() -> None:
    seen = NearDuplicates()
    assert not seen(hashes(np.array([1, 2, 3] * 100)))
    assert seen(hashes(np.array([1, 2, 3] * 100)))
    assert not seen(hashes(np.array([4, 5, 6] * 100)))
