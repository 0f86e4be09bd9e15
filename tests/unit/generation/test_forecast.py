"""Predicted KV use, held against what simulated answers really hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.forecast import HORIZONS, fitting, use
from draftmill.generation.lengths import LengthLaw, LengthModel


def learned(rng: np.random.Generator, mean: float, maximum: int) -> tuple[LengthLaw, np.ndarray]:
    lengths = np.minimum(np.ceil(rng.lognormal(np.log(mean) - 0.4, 0.9, 20_000)), maximum)
    return LengthModel(mean, maximum, lengths).law(), lengths


@pytest.mark.parametrize("age", [0, 100, 400])
def test_mean_and_spread_are_those_of_real_answers(age: int) -> None:
    rng = np.random.default_rng(1)
    law, lengths = learned(rng, 300.0, 2_400)
    ahead = np.array(HORIZONS[:11]) * law.mean
    mean, variance = use(law, np.full(50, float(age)), np.full(50, 40.0), ahead)
    under_way = rng.choice(lengths[lengths > age], (4_000, 50))
    for column, later in enumerate(age + ahead):
        held = np.where(under_way > later, later + 40, 0).sum(axis=1)
        assert mean[column] == pytest.approx(held.mean(), rel=0.06)
        assert variance[column] == pytest.approx(held.var(), rel=0.25, abs=2_000)


positive = st.floats(1.0, 1e5)


@given(
    fresh=st.lists(positive, min_size=2, max_size=6),
    spread=positive,
    variance=st.floats(0, 1e9),
    room=st.floats(-1e5, 1e6),
    caution=st.floats(0, 4),
)
def test_what_fits_fits_and_no_more_would(fresh: list[float], spread: float, variance: float, room: float, caution: float) -> None:
    need, size = np.array(fresh), len(fresh)
    k = fitting(need, np.full(size, spread), np.full(size, variance), np.full(size, room), caution)

    def over(count: float) -> float:
        return float((count * need + caution * np.sqrt(variance + count * spread) - room).max())

    slack = 1e-6 * (abs(room) + need.max() + caution * np.sqrt(variance) + 1)
    assert k >= 0
    assert k == 0 or over(k) <= slack
    assert over(k + 1) > -slack


def test_a_moment_at_which_nothing_fresh_is_left_forbids_nothing() -> None:
    assert fitting(np.array([10.0, 0.0]), np.array([1.0, 0.0]), np.zeros(2), np.array([100.0, -5.0]), 1.0) > 5
