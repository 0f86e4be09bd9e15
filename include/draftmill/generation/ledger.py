"""The account of a data set's token budget: spent (in the journal), committed (under way, expected), left.

Admission is predictive: it stops when spent + expected total of what is under way reaches the budget, and everything admitted is awaited
and kept, so no answer is chosen or dropped for its length. Near the end the uncertainty of what is under way decides as well: no more
is admitted at once than can be told to end within the tolerance with good probability. So a small budget is finished by few requests at
a time, and the last one by itself.

What cannot be avoided: lengths are drawn one after the other, and the total must land in a window of twice the tolerance. The chance
that one answer jumps over that window is E[(X - 2 T)+] / E[X] for a tolerance of T tokens, whatever the policy: about 3 % for a budget of
200 mean answers cut at 6.8 means, below 0.1 % from 350 means on, and 0 where the maximum is below 2 T.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from draftmill.generation.flights import Flights
from draftmill.generation.lengths import LengthLaw, LengthModel
from draftmill.spec.results import Outcome

TOLERANCE = 0.01
"""Of the budget, where the budget is at least SMALL mean answers."""

SMALL = 170
"""The promise is made for 200 mean answers. The mean is known to 8 % by then, so the line is drawn below nearly all of those."""

_CAUTION = 4.0
"""Standard deviations of what is under way that must fit below budget + tolerance. More than a single look would need: admission is
looked at again after every answer and cannot be taken back, so the most optimistic of many looks counts."""

_LEAST_BLUR = 0.1
"""Relative error that all expectations of what is under way have in common, at least: how far each has come is inferred, not known."""

_SLACK = 0.9
"""Share of the tolerance that is used: the rest is for errors of the estimate."""


def tolerance(budget: int, mean: float) -> float:
    """How far the final total may lie from the budget, in tokens: 1 %, or one mean answer where the budget is below SMALL of them."""
    return TOLERANCE * budget if budget >= SMALL * mean else mean


def missing_is_settled(budget: int, spent: int, mean: float) -> bool:
    """Whether a budget counts as reached: so little is left that another answer is as likely to harm as to help, or it is within 1 %."""
    left = budget - spent
    if left <= mean / 2:
        return True
    return budget >= SMALL * mean and left <= _SLACK * TOLERANCE * budget


@dataclass
class Ledger:
    """Decides how many more requests the budget takes. Times are seconds of any one clock, lengths are tokens."""

    budget: int
    lengths: LengthModel
    flights: Flights
    spent: int = 0
    responses: int = 0
    max_samples: int | None = None

    def settle(self, tokens: int) -> None:
        """An answer is in the journal."""
        self.spent += tokens
        self.responses += 1
        self.lengths.add(tokens)

    @property
    def mean(self) -> float:
        """Mean length of the answers in the journal; the expected one where there is none yet."""
        return self.spent / self.responses if self.responses else self.lengths.law().mean

    def reached(self) -> Outcome | None:
        """What has been reached, judged from the journal alone; None where work is left."""
        if missing_is_settled(self.budget, self.spent, self.mean):
            return "budget_reached"
        if self.max_samples is not None and self.responses >= self.max_samples:
            return "max_samples"
        return None

    @property
    def winding_down(self) -> bool:
        """Whether most of the budget is spent or under way: where the budget holds this job back now, it will do so to its end."""
        return self.spent + len(self.flights) * self.mean >= self.budget / 2

    def room(self, now: float, limit: int) -> int:
        """How many more requests may be sent now, at most `limit`."""
        if self.max_samples is not None:
            limit = min(limit, self.max_samples - self.responses - len(self.flights))
        if limit <= 0:
            return 0
        left = self.budget - self.spent
        if left > (len(self.flights) + limit + 1) * 2 * self.lengths.maximum:
            return limit
        return min(limit, self._predicted(now, left))

    def _predicted(self, now: float, left: int) -> int:
        ages = self.flights.ages(now)
        law = self.lengths.law(ages)
        if not len(ages):
            alone = 0 if missing_is_settled(self.budget, self.spent, self.mean) else 1
            return max(alone, self._fitting(left, 0.0, 0.0, law))
        rest, variance = law.expected_rest(ages)
        return self._fitting(left, float((ages + rest).sum()), float(variance.sum()), law)

    def _fitting(self, left: float, committed: float, variance: float, law: LengthLaw) -> int:
        """The largest number of new answers of `law` that neither rule forbids, given what is committed.

        The first rule: expected total at most half an answer above the budget. The second: expected total plus _CAUTION standard
        deviations at most the tolerance above it. The variance is that of the single answers and, while little is known, of the law's
        own mean, which all of them share. The second rule is monotonic in the number, so bisection finds it.
        """
        ceiling = math.floor((left - committed) / law.mean + 0.5)
        room = left + _SLACK * tolerance(self.budget, law.mean) - committed
        under_way = len(self.flights)
        error = law.error + max(_LEAST_BLUR, self.flights.progress.blur) * law.mean

        def fits(more: int) -> bool:
            shared = (under_way + more) * error
            return more * law.mean + _CAUTION * math.sqrt(variance + more * law.deviation**2 + shared**2) <= room

        if ceiling <= 0 or fits(ceiling):
            return max(0, ceiling)
        return bisect_left(range(1, ceiling + 1), True, key=lambda more: not fits(more))
