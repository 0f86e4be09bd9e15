"""The same campaign under other policies: what generation could gain or lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill.simulator.material import Material
from draftmill.simulator.policies import Outcome, Work, bound_seconds, oracle, static, sweep
from draftmill.simulator.profile import HostProfile
from draftmill.simulator.report import table
from draftmill.spec.dataset import LengthClass

STATIC: dict[LengthClass, int] = {"short": 150, "long": 32}
"""Numbers in flight that the first host was run with."""

NUMBERS = (16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 448, 640, 896, 1_024, 1_280, 1_536, 2_048)
"""What the sweep for the best static numbers tries."""


@dataclass
class Comparison:
    """Outcomes on one host. best_numbers: of the sweep. bound_s: seconds that no admission can beat, even if it could reorder."""

    work: Sequence[Work]
    static: Outcome
    best_static: Outcome
    best_numbers: dict[LengthClass, int]
    oracle: Outcome
    bound_s: float

    def worst_error(self, outcome: Outcome) -> float:
        """The largest budget error of a data set, as a share of its budget, without its sign."""
        return max(abs(outcome.budget_error(work)) for work in self.work)


def work_of(material: Material) -> list[Work]:
    """The material's data sets as policies see them."""
    return [Work(entry.name, entry.length_class, entry.budget_tokens, material.lengths(entry)) for entry in material.plan.datasets]


def compare(work: Sequence[Work], host: HostProfile, at_once: int) -> Comparison:
    """Run every policy but generation itself on `host`. `at_once`: data sets that the oracle has open at a time."""
    numbers, best = sweep(host, work, NUMBERS)
    fixed = static(host, work, lambda entry: STATIC[entry.length_class])
    return Comparison(work, fixed, best, numbers, oracle(host, work, at_once), bound_seconds(host, work))


def text(comparison: Comparison, draftmill_s: float, draftmill_error: float) -> str:
    """A table of the policies, draftmill among them."""
    best = comparison.best_numbers
    outcomes = [
        ("oracle: knows every length", comparison.oracle.seconds, comparison.worst_error(comparison.oracle)),
        ("draftmill", draftmill_s, draftmill_error),
        (f"best static of a sweep ({_in_words(best)})", comparison.best_static.seconds, comparison.worst_error(comparison.best_static)),
        (f"static ({_in_words(STATIC)})", comparison.static.seconds, comparison.worst_error(comparison.static)),
    ]
    rows = [[name, f"{seconds / 3600:.2f}", f"{100 * error:.2f} %"] for name, seconds, error in outcomes]
    limit = f"No admission, even one that reorders, takes less than {comparison.bound_s / 3600:.2f} hours."
    return f"{table(['policy', 'hours', 'worst budget error'], rows)}\n{limit}"


def _in_words(numbers: dict[LengthClass, int]) -> str:
    return ", ".join(f"{length_class} {number}" for length_class, number in sorted(numbers.items(), reverse=True))
