from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.simulator.policies import Work, bound_seconds, oracle, static, sweep
from draftmill.simulator.profile import HostProfile

HOST = HostProfile("small", base_s=0.05, per_request_s=0.001, kv_tokens=4_000, prefill_tokens_per_s=100_000.0, max_running=64)


def work(name: str = "one", budget: int = 20_000, seed: int = 1, longest: int = 400) -> Work:
    rng = random.Random(seed)
    return Work(name, "short", budget, [(rng.randint(5, 50), rng.randint(1, longest)) for _ in range(600)])


def test_nearest_is_the_prefix_that_comes_nearest_to_the_budget() -> None:
    lengths = [(1, 10), (1, 10), (1, 10)]
    assert [len(Work("w", "short", budget, lengths).nearest()) for budget in (10, 14, 15, 16, 24, 26, 99)] == [1, 1, 2, 2, 2, 3, 3]


def test_static_overshoots_by_what_is_in_flight_at_the_budget() -> None:
    one = work()
    outcomes = {number: static(HOST, [one], lambda _, number=number: number) for number in (1, 8, 16)}
    errors = [outcomes[number].budget_error(one) for number in (1, 8, 16)]
    assert 0 <= errors[0] < 400 / one.budget
    assert errors[0] < errors[1] < errors[2]
    assert outcomes[16].seconds < outcomes[8].seconds < outcomes[1].seconds


def test_static_takes_data_sets_one_after_the_other() -> None:
    first, second = work("first"), work("second", seed=2)
    both = static(HOST, [first, second], lambda _: 8)
    alone = [static(HOST, [entry], lambda _: 8).seconds for entry in (first, second)]
    assert both.seconds == pytest.approx(sum(alone))
    assert both.seconds_of == {"first": alone[0], "second": alone[1]}


def test_the_sweep_finds_the_best_number_of_each_class() -> None:
    short, long = work("short"), dataclasses.replace(work("long", seed=3, longest=1_500), length_class="long")
    numbers = (2, 8, 32)
    best, outcome = sweep(HOST, [short, long], numbers)
    for entry in (short, long):
        times = {number: static(HOST, [entry], lambda _, number=number: number).seconds for number in numbers}
        assert times[best[entry.length_class]] == min(times.values())
        assert outcome.seconds_of[entry.name] == min(times.values())


@given(seed=st.integers(0, 10_000), kv_tokens=st.sampled_from([900, 3_000, 20_000]), at_once=st.integers(1, 3))
@settings(max_examples=25)
def test_the_oracle_never_overflows_and_never_beats_the_bound(seed: int, kv_tokens: int, at_once: int) -> None:
    host = dataclasses.replace(HOST, kv_tokens=kv_tokens)
    campaign = [work(name, 8_000, seed + place) for place, name in enumerate("abc")]
    outcome = oracle(host, campaign, at_once)
    assert outcome.counters.retracted == 0
    assert outcome.counters.peak_kv <= kv_tokens
    assert outcome.counters.answered_tokens == sum(outcome.tokens.values())
    assert all(abs(outcome.budget_error(entry)) <= 200 / entry.budget for entry in campaign)
    assert outcome.seconds >= bound_seconds(host, campaign) * (1 - 1e-9)


def test_the_oracle_is_near_the_bound_where_answers_are_small_for_the_cache() -> None:
    campaign = [work(budget=60_000, longest=100)]
    assert bound_seconds(HOST, campaign) / oracle(HOST, campaign, 1).seconds > 0.9


def test_the_oracle_beats_every_fixed_number() -> None:
    campaign = [work("a", 30_000), work("b", 30_000, seed=2)]
    hours = oracle(HOST, campaign, 2).seconds
    assert all(hours < static(HOST, campaign, lambda _, number=number: number).seconds for number in (4, 8, 16, 32, 64))
