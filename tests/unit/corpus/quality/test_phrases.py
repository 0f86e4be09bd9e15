"""Hashes of phrases: equal phrases are equal, different ones are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill.corpus.quality.phrases import PHRASE, phrase_count, phrases_at, quad_hashes


def all_phrases(ids: np.ndarray) -> np.ndarray:
    quads = quad_hashes(ids)
    return phrases_at(quads, np.arange(phrase_count(quads)))


@pytest.mark.parametrize("high", [2, 3, 10, 300, 163_840])
def test_there_are_as_many_values_as_phrases(high: int) -> None:
    ids = np.random.default_rng(high).integers(0, high, 30_000).astype(np.int32)
    phrases = {tuple(ids[place : place + PHRASE].tolist()) for place in range(len(ids) - PHRASE + 1)}
    assert len(all_phrases(ids)) == 30_000 - PHRASE + 1
    assert len(np.unique(all_phrases(ids))) == len(phrases)


def test_a_value_depends_on_its_phrase_alone() -> None:
    ids = np.random.default_rng(1).integers(0, 163_840, 300).astype(np.int32)
    assert all_phrases(ids)[40:].tolist() == all_phrases(ids[40:]).tolist()


@pytest.mark.parametrize("length", range(PHRASE))
def test_what_is_shorter_than_a_phrase_has_none(length: int) -> None:
    ids = np.arange(length, dtype=np.int32)
    assert phrase_count(quad_hashes(ids)) == 0
    assert len(all_phrases(ids)) == 0


def test_values_are_spread_evenly() -> None:
    """Sampling by their upper bits needs that."""
    ids = (np.random.default_rng(3).zipf(1.2, 200_000) % 163_840).astype(np.int32)
    cells = np.bincount(np.unique(quad_hashes(ids)) >> np.uint32(28), minlength=16)
    assert cells.min() > 0.95 * cells.mean()
    assert cells.max() < 1.05 * cells.mean()
