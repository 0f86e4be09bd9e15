"""The ledger alone, with requests that progress together: budgets, overshoot, bias. No server, no clock but a count of steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from draftmill.generation.flights import Flights, Progress
from draftmill.generation.ledger import Ledger, missing_is_settled, tolerance
from draftmill.generation.lengths import LengthModel
from draftmill.simulator.workload import LengthLaw


@dataclass
class Outcome:
    total: int
    lengths: list[int] = field(default_factory=list)
    peak: int = 0


def run(law: LengthLaw, budget: int, in_flight: int, seed: int, expected: float | None = None, **options: int) -> Outcome:
    """Every request in flight gets one token a step of 50 ms; free places are filled as far as the ledger allows."""
    rng = random.Random(seed)
    flights = Flights(Progress())
    ledger = Ledger(budget, LengthModel(expected or law.mean, law.cap), flights, **options)
    outcome = Outcome(0)
    ends: dict[str, tuple[int, int]] = {}
    step, number = 0, 0
    while True:
        now = step * 0.05
        flights.progress.report(now, 20.0)
        for _ in range(ledger.room(now, in_flight - len(ends))):
            length = min(law.cap, law.quantile(rng.random()))
            ends[str(number)] = (step + length, step)
            flights.start(str(number), 100, now)
            number += 1
        outcome.peak = max(outcome.peak, len(ends))
        if not ends:
            assert ledger.reached() is not None
            return outcome
        step = min(end for end, _ in ends.values())
        for key in [key for key, (end, _) in ends.items() if end == step]:
            began = ends.pop(key)[1]
            flights.progress.finished(step * 0.05, step - began, began * 0.05)
            flights.end(key)
            ledger.settle(step - began)
            outcome.lengths.append(step - began)
            outcome.total = ledger.spent


@pytest.mark.parametrize(("mean", "cap"), [(1_500, 10_240), (4_000, 16_384), (8_000, 16_384)])
@pytest.mark.parametrize("in_flight", [1, 32, 150, 600])
def test_the_total_is_within_one_per_cent_at_any_concurrency(mean: int, cap: int, in_flight: int) -> None:
    law = LengthLaw(mean, cap)
    for seed in range(3):
        budget = 500 * mean
        assert abs(run(law, budget, in_flight, seed).total / budget - 1) <= 0.01


@pytest.mark.parametrize("wrong_by", [0.3, 3.0])
def test_a_wrong_expectation_does_not_matter(wrong_by: float) -> None:
    law = LengthLaw(1_500, 10_240)
    for seed in range(5):
        assert abs(run(law, 600 * 1_500, 150, seed, expected=1_500 * wrong_by).total / (600 * 1_500) - 1) <= 0.01


def test_at_two_hundred_answers_misses_are_as_rare_as_the_window_allows() -> None:
    """One long answer may jump over the window whatever is done: see the module's docstring for the chance of it."""
    law = LengthLaw(1_500, 10_240)
    exact = np.array([min(law.cap, law.quantile((number + 0.5) / 50_000)) for number in range(50_000)])
    unavoidable = float(np.maximum(exact - 4 * 1_500, 0).mean() / exact.mean())
    budget, runs = 200 * 1_500, 150
    misses = sum(abs(run(law, budget, 150, seed).total / budget - 1) > 0.01 for seed in range(runs))
    assert misses <= runs * unavoidable + 3.5 * (runs * unavoidable) ** 0.5


@pytest.mark.parametrize("answers", [1, 3, 20, 100])
def test_a_small_budget_is_met_within_one_answer(answers: int) -> None:
    law = LengthLaw(1_500, 10_240)
    for seed in range(20):
        outcome = run(law, answers * 1_500, 150, seed)
        assert -1_500 <= outcome.total - answers * 1_500 <= max(outcome.lengths)


def test_what_is_kept_is_unbiased() -> None:
    """Mean length over many runs, against the law's mean, in units of the standard error."""
    law = LengthLaw(1_500, 10_240)
    kept = np.concatenate([run(law, 400 * 1_500, 150, seed).lengths for seed in range(40)])
    exact = np.array([min(law.cap, law.quantile((number + 0.5) / 50_000)) for number in range(50_000)])
    assert abs(kept.mean() - exact.mean()) < 3.5 * exact.std() / len(kept) ** 0.5


def test_no_more_samples_than_asked_for() -> None:
    law = LengthLaw(1_500, 10_240)
    assert len(run(law, 10**9, 150, 1, max_samples=37).lengths) == 37


def test_far_from_the_budget_nothing_is_held_back() -> None:
    assert run(LengthLaw(1_500, 10_240), 2_000 * 1_500, 150, 1).peak == 150


@pytest.mark.parametrize(
    ("budget", "spent", "settled"),
    [
        (10_000, 10_000, True),
        (10_000, 9_951, True),
        (10_000, 9_949, False),
        (100_000, 99_100, True),
        (100_000, 99_000, False),
        (100, 0, False),
    ],
)
def test_what_counts_as_reached(budget: int, spent: int, settled: bool) -> None:
    assert missing_is_settled(budget, spent, mean=100) is settled


def test_the_tolerance_is_one_per_cent_or_one_answer() -> None:
    assert tolerance(100_000, 100) == 1_000
    assert tolerance(10_000, 100) == 100
