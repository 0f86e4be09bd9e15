"""Loops are found, and honest repetition is not called one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from draftmill.corpus.quality.phrases import quad_hashes
from draftmill.corpus.quality.repetition import is_degenerate


def degenerate(ids: list[int]) -> bool:
    return is_degenerate(quad_hashes(np.array(ids, dtype=np.int32)))


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
