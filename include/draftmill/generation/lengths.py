"""How long answers are, learned while they come in, and what is still to be expected of one that is under way.

Short answers come back first, so the mean of the finished ones is too low for as long as the run is young. The estimate therefore
counts those under way as what they are, censored observations: answers that are at least as long as they are by now. It is the
life-table form of the Kaplan-Meier estimator, on a fixed grid of lengths (E. L. Kaplan and P. Meier, "Nonparametric Estimation from
Incomplete Observations", JASA 53, 1958), with a prior of PRIOR_WEIGHT imagined answers from a log-normal law.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64] | npt.NDArray[np.int32]

SIGMA = 0.9
"""Of the logarithm of answer lengths, as measured on the first host's data sets."""

PRIOR_WEIGHT = 24.0
BINS = 96
_AT_ONCE = 65_536
"""Known lengths are taken in pieces, so that millions of them need no copies of their own."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class LengthLaw:
    """An estimate, as a table over `grid` (tokens, from 0 to the maximum).

    survival: share of answers longer than the grid point. rest, moment: integrals from the grid point to the maximum of S(x) and of
    x S(x), where S is the survival. mean, deviation: of an answer's length, in tokens. error: standard error of `mean`.
    """

    grid: Floats
    survival: Floats
    rest: Floats
    moment: Floats
    mean: float
    deviation: float
    error: float

    @property
    def stationary(self) -> float:
        """Mean number of tokens that a request has generated, seen at a random moment of its run: E[X^2] / (2 E[X])."""
        return float(self.moment[0]) / self.mean

    def alive(self, ages: Floats) -> Floats:
        """Share of answers longer than `ages`, by linear interpolation; 0 from the maximum on."""
        import numpy as np

        return np.interp(ages, self.grid, self.survival, right=0.0)

    def expected_rest(self, ages: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the tokens still to come of answers that are `ages` long so far.

        E[X - a | X > a] = I(a) / S(a), and E[(X - a)^2 | X > a] = 2 (J(a) - a I(a)) / S(a), with I and J the integrals `rest` and `moment`.
        """
        import numpy as np

        ages = np.minimum(ages, self.grid[-1])
        alive = np.maximum(np.interp(ages, self.grid, self.survival), 1e-9)
        rest = np.interp(ages, self.grid, self.rest)
        mean = rest / alive
        square = 2 * (np.interp(ages, self.grid, self.moment) - ages * rest) / alive
        return mean, np.maximum(square - mean * mean, 0.0)


class LengthModel:
    """Collects finished answers; `law` combines them with those under way.

    expected: mean length to start from, in tokens. maximum: max_new_tokens, where answers are cut. known: lengths of earlier answers.
    """

    def __init__(self, expected: float, maximum: int, known: Ints | Floats | None = None) -> None:
        import numpy as np

        self.maximum = maximum
        self.count = 0
        self.total = 0
        inner = np.geomspace(max(1.0, maximum / 2_000), maximum - 1, BINS) if maximum > 2 else np.empty(0)
        # The last bin holds the answers that were cut, and no others.
        self._grid: Floats = np.concatenate([[0.0], inner, [float(maximum)]])
        self._edges: list[float] = self._grid.tolist()
        self._finished = np.zeros(len(self._grid))
        self._prior = _log_normal_survival(self._grid, expected)
        if known is not None:
            for start in range(0, len(known), _AT_ONCE):
                self._take(known[start : start + _AT_ONCE])

    def _take(self, lengths: Ints | Floats) -> None:
        import numpy as np

        cut = np.minimum(lengths, self.maximum)
        self._finished += np.bincount(np.searchsorted(self._grid, cut, side="left"), minlength=len(self._grid))[: len(self._grid)]
        self.count += len(cut)
        self.total += int(cut.sum())

    def add(self, tokens: int) -> None:
        """Count a finished answer."""
        tokens = min(tokens, self.maximum)
        self._finished[bisect_left(self._edges, tokens)] += 1
        self.count += 1
        self.total += tokens

    def law(self, under_way: Floats | None = None) -> LengthLaw:
        """The present estimate; `under_way` are the lengths, so far, of answers that are not finished."""
        import numpy as np

        grid, bins = self._grid, len(self._grid)
        finished = self._finished.copy()
        censored = np.zeros(bins)
        if under_way is not None and len(under_way):
            censored = np.bincount(np.searchsorted(grid, np.minimum(under_way, self.maximum - 0.5), side="left"), minlength=bins)[
                :bins
            ].astype(float)
        # At risk in bin k (grid[k-1], grid[k]]: everything that reached grid[k-1]; the life table counts the censored of a bin as half.
        reached = np.cumsum((finished + censored)[::-1])[::-1]
        at_risk = reached - censored / 2
        prior_ends = PRIOR_WEIGHT * -np.diff(self._prior, prepend=1.0)
        prior_risk = PRIOR_WEIGHT * np.concatenate([[1.0], self._prior[:-1]])
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = np.where(at_risk + prior_risk > 0, (finished + prior_ends) / (at_risk + prior_risk), 1.0)
        survival: Floats = np.cumprod(1.0 - np.clip(hazard, 0.0, 1.0), dtype=np.float64)
        survival[-1] = 0.0
        return _tabulate(grid, survival, self._weight(len(under_way) if under_way is not None else 0))

    def _weight(self, under_way: int) -> float:
        return self.count + PRIOR_WEIGHT + under_way / 2


def _cut_mean(mu: float, cut: float) -> float:
    """E[min(X, cut)] for ln X ~ N(mu, SIGMA^2): exp(mu + SIGMA^2 / 2) Phi(z - SIGMA) + cut Phi(-z), with z = (ln cut - mu) / SIGMA."""
    z = (math.log(cut) - mu) / SIGMA
    return math.exp(mu + SIGMA * SIGMA / 2) * _NORMAL.cdf(z - SIGMA) + cut * _NORMAL.cdf(-z)


def _log_normal_survival(grid: Floats, mean: float) -> Floats:
    """Survival on the grid of a log-normal law that has this mean after being cut at the end of the grid."""
    import numpy as np

    cut = max(float(grid[-1]), 2.0)
    low, high = -2.0, math.log(cut) + 2.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _cut_mean(middle, cut) < mean else (low, middle)
    return np.array([1.0] + [1.0 - _NORMAL.cdf((math.log(point) - low) / SIGMA) for point in grid[1:-1]] + [0.0])


def _tabulate(grid: Floats, survival: Floats, weight: float) -> LengthLaw:
    import numpy as np

    # The last point is the cut: survival falls to 0 there at once, so the last bin takes the value on its left.
    left, right = survival[:-1], np.concatenate([survival[1:-1], survival[-2:-1]])
    width, middle = np.diff(grid), (grid[:-1] + grid[1:]) / 2
    area = (left + right) / 2 * width
    slope = (right - left) * width * width / 12
    rest = np.concatenate([np.cumsum(area[::-1])[::-1], [0.0]])
    moment = np.concatenate([np.cumsum((area * middle + slope)[::-1])[::-1], [0.0]])
    mean = float(rest[0])
    deviation = math.sqrt(max(2 * float(moment[0]) - mean * mean, 0.0))
    return LengthLaw(grid, survival, rest, moment, mean, deviation, deviation / math.sqrt(weight))
