from __future__ import annotations

import random

import numpy as np
import pytest

from draftmill.generation.lengths import LengthModel
from draftmill.simulator.workload import LengthLaw as TrueLaw

TRUE = TrueLaw(1_500, 10_240)


def draw(rng: random.Random) -> int:
    return min(TRUE.cap, TRUE.quantile(rng.random()))


def test_without_observations_the_law_is_the_expected_one() -> None:
    law = LengthModel(1_500, 10_240).law()
    assert law.mean == pytest.approx(1_500, rel=0.02)
    exact = np.array([min(TRUE.cap, TRUE.quantile((number + 0.5) / 20_000)) for number in range(20_000)])
    assert law.deviation == pytest.approx(exact.std(), rel=0.03)
    assert law.stationary == pytest.approx((exact**2).mean() / (2 * exact.mean()), rel=0.03)


def test_the_rest_of_an_answer_is_that_of_answers_as_long() -> None:
    rng = random.Random(1)
    exact = np.array([draw(rng) for _ in range(40_000)], float)
    law = LengthModel(400, 10_240, exact).law()
    for age in (0.0, 300.0, 1_500.0, 6_000.0):
        rest = exact[exact > age] - age
        mean, variance = law.expected_rest(np.array([age]))
        assert mean[0] == pytest.approx(rest.mean(), rel=0.05)
        assert variance[0] == pytest.approx(rest.var(), rel=0.08)


def test_the_first_to_come_back_do_not_make_the_mean_too_low() -> None:
    """All were sent at once and 600 steps later only the short ones are back: their mean is far off, the estimate is not."""
    errors, naive = [], []
    for seed in range(30):
        rng = random.Random(seed)
        lengths = [draw(rng) for _ in range(400)]
        model = LengthModel(1_500, 10_240)
        back = [length for length in lengths if length <= 600]
        for length in back:
            model.add(length)
        errors.append(model.law(np.full(400 - len(back), 600.0)).mean / TRUE.mean - 1)
        naive.append(np.mean(back) / TRUE.mean - 1)
    assert np.mean(naive) < -0.7
    assert abs(np.mean(errors)) < 0.1


def test_learning_one_by_one_is_learning_at_once() -> None:
    rng = random.Random(2)
    lengths = [draw(rng) for _ in range(300)]
    slow = LengthModel(900, 10_240)
    for length in lengths:
        slow.add(length)
    fast = LengthModel(900, 10_240, np.array(lengths, float))
    assert slow.law().mean == pytest.approx(fast.law().mean)
    assert (slow.count, slow.total) == (fast.count, fast.total)


@pytest.mark.parametrize("maximum", [1, 2, 3, 16])
def test_very_short_maxima_work(maximum: int) -> None:
    model = LengthModel(5, maximum)
    model.add(maximum)
    law = model.law(np.array([0.0]))
    assert 0 < law.mean <= maximum
