"""Loops are found, and honest repetition is not called one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from draftmill.corpus.quality.repetition import PHRASE, is_degenerate, phrase_hashes


def degenerate(ids: list[int]) -> bool:
    array = np.array(ids, dtype=np.int32)
    return is_degenerate(array, phrase_hashes(array))


def speech(count: int, seed: int = 1, words: int = 400) -> list[int]:
    """Tokens as text has them: a few are very frequent."""
    chance = random.Random(seed)
    return [int(chance.paretovariate(0.6)) % words for _ in range(count)]


@pytest.mark.parametrize("period", [1, 2, 3, 7, 16, 40, 101, 160])
def test_a_loop_is_found_whatever_its_period(period: int) -> None:
    assert degenerate(speech(period, words=160_000) * (4000 // period))


@pytest.mark.parametrize("before", [0, 500, 3000, 9000])
def test_a_loop_is_found_behind_a_good_beginning_and_before_a_good_end(before: int) -> None:
    assert degenerate([*speech(before), *[11, 12, 13, 14, 15] * 600, *speech(300, seed=9)])


@pytest.mark.parametrize("length", [10, 127, 128, 600, 1024, 1031, 5000, 16_384])
def test_speech_is_no_loop(length: int) -> None:
    assert not degenerate(speech(length))


def test_a_table_is_no_loop() -> None:
    rows = [[20, 21, number % 50, 22, 23 + number // 50, 24] for number in range(1000)]
    assert not degenerate([token for row in rows for token in row])


def test_short_answers_are_not_judged() -> None:
    assert not degenerate([4] * 127)
    assert degenerate([4] * 200)


def test_hashes_depend_on_their_phrase_alone() -> None:
    ids = np.array(speech(300), dtype=np.int32)
    hashes = phrase_hashes(ids)
    assert len(hashes) == 300 - PHRASE + 1
    assert hashes[40:].tolist() == phrase_hashes(ids[40:]).tolist()
    assert len(phrase_hashes(ids[: PHRASE - 1])) == 0
    assert len(phrase_hashes(ids[:0])) == 0


def test_different_phrases_have_different_hashes() -> None:
    ids = np.random.default_rng(2).integers(0, 163_840, 50_000).astype(np.int32)
    assert len(np.unique(phrase_hashes(ids))) == 50_000 - PHRASE + 1


def test_small_alphabets_and_neighbouring_ids_spread_as_well() -> None:
    for high in (2, 3, 10, 300):
        ids = np.random.default_rng(high).integers(0, high, 40_000).astype(np.int32)
        phrases = len({tuple(ids[place : place + PHRASE]) for place in range(len(ids) - PHRASE + 1)})
        assert len(np.unique(phrase_hashes(ids))) == phrases
