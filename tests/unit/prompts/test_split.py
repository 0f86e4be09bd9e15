"""Held out by id alone."""

from __future__ import annotations

from draftmill.prompts.prompt import order_key
from draftmill.prompts.split import is_held_out

IDS = [f"{number:032x}" for number in range(4000)]


def held(seed: int, fraction: float) -> set[str]:
    return {name for name in IDS if is_held_out(name, seed, fraction)}


def test_the_share_is_about_the_fraction_and_grows_with_it() -> None:
    assert held(1, 0.0) == set()
    assert 150 < len(held(1, 0.05)) < 250
    assert held(1, 0.05) < held(1, 0.1)


def test_the_seed_decides() -> None:
    assert held(1, 0.05) == held(1, 0.05)
    assert held(1, 0.05) != held(2, 0.05)


def test_it_is_independent_of_the_work_order() -> None:
    first = sorted(IDS, key=lambda name: order_key(1, name))[:1000]
    out = held(1, 0.1)
    assert 60 < sum(name in out for name in first) < 140
